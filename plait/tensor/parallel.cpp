#include "plait/tensor/parallel.h"

#include <ATen/Parallel.h>
#include <omp.h>

#ifndef _OPENMP
#error "compile this file with -fopenmp: without it at::parallel_for is a plain loop"
#endif

namespace plait {

void parallel_ranges(int64_t begin, int64_t end, int64_t grain, const std::function<void(int64_t, int64_t)>& body) {
  at::parallel_for(begin, end, grain, body);
}

void use_one_thread() {
  at::internal::lazy_init_num_threads();  // a thread's first look at the number sets it: here as this library looks,
  at::get_num_threads();                  // and as LibTorch does
  omp_set_num_threads(1);
}

}  // namespace plait
