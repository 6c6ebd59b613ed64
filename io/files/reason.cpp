#include "io/files/reason.hpp"

#include <array>
#include <stdexcept>
#include <utility>

namespace millrace {
namespace {

/// Segments, journals and manifests contain these words and are read back by them. So a word never changes.
constexpr std::array<std::pair<Reason, std::string_view>, 19> names{{
    {Reason::empty, "empty"},
    {Reason::not_an_image, "not_an_image"},
    {Reason::truncated, "truncated"},
    {Reason::corrupt_data, "corrupt_data"},
    {Reason::too_large, "too_large"},
    {Reason::too_small, "too_small"},
    {Reason::unsupported_format, "unsupported_format"},
    {Reason::codec_missing, "codec_missing"},
    {Reason::io_error, "io_error"},
    {Reason::vanished, "vanished"},
    {Reason::permission, "permission"},
    {Reason::not_regular, "not_regular"},
    {Reason::changed_since_plan, "changed_since_plan"},
    {Reason::no_boxes, "no_boxes"},
    {Reason::oom_host, "oom_host"},
    {Reason::oom_device, "oom_device"},
    {Reason::non_finite, "non_finite"},
    {Reason::model_failed, "model_failed"},
    {Reason::internal, "internal"},
}};

}  // namespace

std::string_view to_string(Reason reason) {
  for (const auto& [value, name] : names) {
    if (value == reason) return name;
  }
  throw std::invalid_argument("a reason without a name: " + std::to_string(static_cast<int>(reason)));
}

Reason reason_from_string(std::string_view name) {
  for (const auto& [value, known] : names) {
    if (known == name) return value;
  }
  throw std::invalid_argument("unknown reason '" + std::string(name) + "'");
}

}  // namespace millrace
