#include "plait/tensor/parallel.h"

#include <ATen/Parallel.h>

#ifndef _OPENMP
#error "compile this file with -fopenmp: without it at::parallel_for is a plain loop"
#endif

namespace plait {

void parallel_ranges(int64_t begin, int64_t end, int64_t grain, const std::function<void(int64_t, int64_t)>& body) {
  at::parallel_for(begin, end, grain, body);
}

}  // namespace plait
