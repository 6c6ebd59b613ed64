#pragma once

#include <string>
#include <string_view>

namespace millrace {

/// Why a picture failed. Segment lines contain these names, so a name never changes. New ones are only added.
enum class Reason {
  empty,               ///< the file has no bytes
  not_an_image,        ///< the content is in no picture format that we know
  truncated,           ///< the data end before the picture does
  corrupt_data,        ///< the data contradict themselves
  too_large,           ///< more pixels, bytes or scans than the limits allow
  too_small,           ///< the shorter side would have no pixel in the model's input
  unsupported_format,  ///< a picture, but of a kind we do not decode
  codec_missing,       ///< a picture format whose codec is not installed here
  io_error,            ///< reading failed
  vanished,            ///< in the plan, but the file does not exist
  permission,          ///< not readable by this user
  not_regular,         ///< a pipe, socket, device or folder
  changed_since_plan,  ///< size or time differ from the plan
  no_boxes,            ///< its view has no detector, and the manifest gives no boxes for it
  oom_host,            ///< no host memory for this picture
  oom_device,          ///< too little device memory for this picture, even alone
  non_finite,          ///< NaN or infinity: a model returned it, or the values of the picture have it
  model_failed,        ///< the model call failed for this picture alone, or returned an unknown class
  internal,            ///< a stage threw an unexpected exception
};

/// The stable name, e.g. "truncated".
std::string_view to_string(Reason reason);

/// The reason with that name. Throws std::invalid_argument if none exists.
Reason reason_from_string(std::string_view name);

/// Why and where one picture failed.
struct Failure {
  std::string stage;
  Reason reason = Reason::internal;
  std::string detail;  ///< a sentence for people
};

}  // namespace millrace
