// Not in engine.cpp, because the plug-in of LibTorch needs these two functions and nothing else of it.
#include <algorithm>
#include <array>
#include <cctype>
#include <string>

#include "models/engine.hpp"

namespace millrace {

bool says_out_of_memory(std::string_view message) {
  // Lower case, because each library writes these words in its own way.
  std::string text(message);
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  // The last three name other errors. In practice, a library got no memory for its workspace or handle.
  constexpr std::array<std::string_view, 11> phrases{"out of memory",
                                                     "can't allocate memory",
                                                     "not enough memory",
                                                     "cannot allocate memory",
                                                     "alloc_failed",
                                                     "allocation_failed",
                                                     "cudaerrormemoryallocation",
                                                     "std::bad_alloc",
                                                     "unable to find an engine to execute",
                                                     "cublas_status_not_initialized",
                                                     "cudnn_status_not_initialized"};
  return std::any_of(phrases.begin(), phrases.end(),
                     [&](std::string_view phrase) { return text.find(phrase) != std::string::npos; });
}

bool says_device_failed(std::string_view message) {
  const auto has = [&](std::string_view phrase) { return message.find(phrase) != std::string_view::npos; };
  return (has("CUDA error: ") && !has("CUBLAS_STATUS_")) || has("CUDA driver error: ");
}

}  // namespace millrace
