// parallel_ranges: work on [begin, end) shared out over this rank's threads (at::set_num_threads). at::parallel_for is a template that runs in
// one thread in files compiled without OpenMP; this is compiled with it, for everybody, on LibTorch's own OpenMP library.
// Thread rule: any thread may call; inside a parallel region the body runs in the calling thread.
#pragma once

#include <cstdint>
#include <functional>

namespace plait {

// body(first, last) for pieces of at least `grain` that cover [begin, end) once; returns when all are done. A body's exception is thrown here.
void parallel_ranges(int64_t begin, int64_t end, int64_t grain, const std::function<void(int64_t, int64_t)>& body);

// From now on what the calling thread shares out runs in it alone. at::set_num_threads would also settle the number of every thread that has
// not looked at it yet, the rank's own among them.
void use_one_thread();

}  // namespace plait
