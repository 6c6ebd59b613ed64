#pragma once

namespace millrace {

/// OpenCV's functions compute on the thread that calls them: its own threads would multiply with ours. For the whole
/// process.
void run_opencv_on_the_calling_thread();

}  // namespace millrace
