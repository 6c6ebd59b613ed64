#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "pipeline/what_if.hpp"

namespace millrace {

/// The recording as JSON, for recording.json. Costs have five numbers: core_s, threads, device_s, wait_s, launch_s.
[[nodiscard]] std::string to_json(const Recording& recording);

/// Reads what to_json() wrote. Nothing if the text is damaged, of another version, or has numbers that no run has.
[[nodiscard]] std::optional<Recording> recording_from_json(std::string_view text);

/// The newest attempt of an output folder with a recording that can be read, and its recording. `without` is the name of an
/// attempt that does not count.
[[nodiscard]] std::optional<std::pair<std::string, Recording>> newest_recording(const std::string& output,
                                                                                const std::string& without);

}  // namespace millrace
