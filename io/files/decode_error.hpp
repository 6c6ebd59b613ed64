#pragma once

#include <stdexcept>
#include <string>

#include "io/files/reason.hpp"

namespace millrace {

/// A picture that cannot be read or decoded.
/// `reason()` is for programs, `what()` is a sentence for people that does not contain the path.
class PictureError : public std::runtime_error {
 public:
  PictureError(Reason reason, const std::string& detail) : std::runtime_error(detail), reason_(reason) {}
  Reason reason() const noexcept { return reason_; }

 private:
  Reason reason_;
};

}  // namespace millrace
