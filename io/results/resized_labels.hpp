#pragma once

#include <memory>

#include "base/extent.hpp"
#include "io/results/label_rows.hpp"

namespace millrace {

/// Labels of a picture or volume of size `from` for one of size `to`: a place gets the label of the place in which its
/// centre lies.
std::shared_ptr<const LabelRows> resized_labels(std::shared_ptr<const LabelRows> labels, const Extent& from,
                                                const Extent& to);

}  // namespace millrace
