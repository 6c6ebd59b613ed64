#include "tests/source_dir.hpp"

const char* millrace::source_dir() { return MILLRACE_SOURCE_ROOT; }
