#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "pipeline/what_if.hpp"

namespace millrace {

/// The recording as JSON, for recording.json. Costs have four numbers: core_s, threads, device_s, wait_s.
[[nodiscard]] std::string to_json(const Recording& recording);

/// Reads what to_json() wrote. Nothing if the text is damaged, of another version, or has numbers that no run has.
[[nodiscard]] std::optional<Recording> recording_from_json(std::string_view text);

}  // namespace millrace
