// How a rank's piece of a parameter lies in a file: contiguous runs of the Hugging Face tensor. Load and export both walk them.
#pragma once

#include <cstdint>
#include <functional>

#include "plait/tensor/parameter.h"

namespace plait {

struct FileRun {
  int64_t file_begin = 0;    // first element, flat in the Hugging Face shape
  int64_t length = 0;        // elements, neighbours in the file
  int64_t local_begin = 0;   // first element, flat in the local storage
  int64_t local_stride = 1;  // elements between neighbours in the local storage (transposed parameters: a local row)
};

// In the order of the file for each piece. Empty pieces give no run.
void for_each_file_run(const Parameter& parameter, const std::function<void(const FileRun&)>& f);

}  // namespace plait
