#pragma once

namespace millrace {

/// The root of the source tree. Tests write MILLRACE_SOURCE_DIR, which is defined as this call.
/// It is not a string on the command line: then clones could not share objects in the compiler's cache.
const char* source_dir();

}  // namespace millrace
