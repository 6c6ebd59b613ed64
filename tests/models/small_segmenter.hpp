#pragma once

#include "models/package.hpp"
#include "models/task.hpp"

namespace millrace {

/// A segmenter that exists only as its declaration. Each of its calls takes up to 256 boxes.
inline Package small_segmenter() {
  Package package;
  package.name = "sam";
  package.task = &find_task("segment");
  package.output = {{"embedding", {1, 1, 1}}, {"logits", {1, 1}}, {"max_boxes", {256}}};
  set_methods(package);
  return package;
}

}  // namespace millrace
