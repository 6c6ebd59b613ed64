#pragma once

namespace millrace {

/// The root of the source tree. Tests write MILLRACE_SOURCE_DIR, which stands for this call: as a string on every
/// command line the path would keep the compiler cache of one clone from serving another.
const char* source_dir();

}  // namespace millrace
