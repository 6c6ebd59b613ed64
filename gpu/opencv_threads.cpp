#include "gpu/opencv_threads.hpp"

#include <opencv2/core/utility.hpp>

namespace millrace {

void run_opencv_on_the_calling_thread() { cv::setNumThreads(0); }

}  // namespace millrace
