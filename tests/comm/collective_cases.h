// Bodies of the collective tests, the same for every backend. They throw std::runtime_error on a wrong value, so that they run in
// rank threads and in child processes alike. Rank rule: every rank of the mesh calls the same case.
#pragma once

#include <ATen/ATen.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "plait/base/text.h"
#include "plait/comm/mesh.h"

namespace plait::testing {

inline void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

inline void require_equal(const at::Tensor& got, const at::Tensor& want, const std::string& what) {
  if (got.sizes() == want.sizes() && at::equal(got, want)) return;
  throw std::runtime_error(
      cat(what, ": wrong values, shape [", join(got.sizes()), "], largest difference ",
          got.sizes() == want.sizes() && got.numel() > 0 ? (got.to(at::kDouble) - want.to(at::kDouble)).abs().max().item<double>() : -1.0));
}

// Small integers, exact in every type: a function of (rank, index, salt).
inline at::Tensor rank_values(int64_t rank, at::IntArrayRef shape, at::ScalarType type, int64_t salt) {
  int64_t n = 1;
  for (int64_t extent : shape) n *= extent;
  at::Tensor index = at::arange(n, at::kLong);
  return ((index * 7 + rank * 5 + salt) % 11 + rank).to(type).view(shape);
}

inline const std::vector<at::ScalarType>& all_types() {
  static const std::vector<at::ScalarType> types{at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kLong, at::kByte};
  return types;
}

inline std::string case_name(const char* verb, const ProcessGroup& group, at::ScalarType type, at::IntArrayRef shape) {
  return cat(verb, " ", c10::toString(type), " [", join(shape), "] group ", group.name(), " of ", group.size(), " rank ", group.rank());
}

inline void all_reduce_case(ProcessGroup& group, at::ScalarType type, at::IntArrayRef shape) {
  for (auto op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin}) {
    at::Tensor want = rank_values(0, shape, type, 1);
    for (int64_t r = 1; r < group.size(); ++r) {
      at::Tensor x = rank_values(r, shape, type, 1);
      want = op == ReduceOp::kSum ? want + x : op == ReduceOp::kMax ? at::maximum(want, x) : at::minimum(want, x);
    }
    at::Tensor got = rank_values(group.rank(), shape, type, 1);
    group.all_reduce(got, op)->wait();
    require_equal(got, want, case_name("all_reduce", group, type, shape));
  }
}

inline void all_gather_case(ProcessGroup& group, at::ScalarType type, at::IntArrayRef shape) {
  std::vector<at::Tensor> pieces;
  for (int64_t r = 0; r < group.size(); ++r) pieces.push_back(rank_values(r, shape, type, 2));
  at::Tensor want = at::cat(pieces, 0), got = at::zeros_like(want);
  group.all_gather(got, rank_values(group.rank(), shape, type, 2))->wait();
  require_equal(got, want, case_name("all_gather", group, type, shape));
}

inline void reduce_scatter_case(ProcessGroup& group, at::ScalarType type, at::IntArrayRef shape) {
  std::vector<int64_t> whole = shape.vec();
  whole[0] *= group.size();
  at::Tensor sum = rank_values(0, whole, type, 3);
  for (int64_t r = 1; r < group.size(); ++r) sum = sum + rank_values(r, whole, type, 3);
  at::Tensor want = sum.narrow(0, group.rank() * shape[0], shape[0]), got = at::zeros(shape, type);
  group.reduce_scatter(got, rank_values(group.rank(), whole, type, 3))->wait();
  require_equal(got, want, case_name("reduce_scatter", group, type, shape));
}

inline void broadcast_case(ProcessGroup& group, at::ScalarType type, at::IntArrayRef shape) {
  for (int64_t root = 0; root < group.size(); ++root) {
    at::Tensor got = rank_values(group.rank(), shape, type, 4 + root);
    group.broadcast(got, root)->wait();
    require_equal(got, rank_values(root, shape, type, 4 + root), case_name("broadcast", group, type, shape));
  }
}

// Every rank sends to the next before anybody receives; two messages of one tag stay in order, another tag may come first.
inline void ring_case(ProcessGroup& group, at::ScalarType type, at::IntArrayRef shape) {
  if (group.size() == 1) return;
  int64_t next = (group.rank() + 1) % group.size(), previous = (group.rank() + group.size() - 1) % group.size();
  std::vector<WorkPtr> works;
  for (int64_t i = 0; i < 3; ++i) works.push_back(group.send(rank_values(group.rank(), shape, type, 20 + i), next, i == 2 ? 9 : 1));
  at::Tensor other = at::zeros(shape, type), first = at::zeros(shape, type), second = at::zeros(shape, type);
  group.recv(other, previous, 9)->wait();
  group.recv(first, previous, 1)->wait();
  group.recv(second, previous, 1)->wait();
  for (auto& work : works) work->wait();
  require_equal(other, rank_values(previous, shape, type, 22), case_name("send/recv tag 9", group, type, shape));
  require_equal(first, rank_values(previous, shape, type, 20), case_name("send/recv first", group, type, shape));
  require_equal(second, rank_values(previous, shape, type, 21), case_name("send/recv second", group, type, shape));
}

inline void every_operation(ProcessGroup& group, const std::vector<std::vector<int64_t>>& shapes) {
  for (auto type : all_types()) {
    for (const auto& shape : shapes) {
      all_reduce_case(group, type, shape);
      all_gather_case(group, type, shape);
      reduce_scatter_case(group, type, shape);
      broadcast_case(group, type, shape);
      ring_case(group, type, shape);
    }
  }
  group.barrier();
}

// Two collectives of different shape in flight, waited in the opposite order.
inline void two_in_flight_case(ProcessGroup& group) {
  int64_t n = group.size();
  for (int64_t round = 0; round < 20; ++round) {
    at::Tensor a = at::full({1000 + round}, static_cast<double>(group.rank() + 1), at::kFloat);
    at::Tensor b = at::full({7}, static_cast<double>(group.rank() + round), at::kDouble);
    WorkPtr first = group.all_reduce(a), second = group.all_reduce(b, ReduceOp::kMax);
    second->wait();
    first->wait();
    first->wait();  // twice is allowed
    require(first->done() && second->done(), "done() after wait()");
    require_equal(a, at::full_like(a, static_cast<double>(n * (n + 1) / 2)), "first of two in flight");
    require_equal(b, at::full_like(b, static_cast<double>(n - 1 + round)), "second of two in flight");
  }
}

// Back to back, without a barrier: a call must never see what the next one of a fast peer writes.
inline void back_to_back_case(ProcessGroup& group, int64_t calls) {
  at::Tensor x = at::empty({16}, at::kFloat);
  float* values = x.data_ptr<float>();
  int64_t n = group.size();
  for (int64_t call = 0; call < calls; ++call) {
    for (int i = 0; i < 16; ++i) values[i] = static_cast<float>(group.rank() + call % 1000 + i);
    group.all_reduce(x)->wait();
    for (int i = 0; i < 16; ++i) {
      auto want = static_cast<float>(n * (n - 1) / 2 + n * (call % 1000 + i));
      if (values[i] != want) throw std::runtime_error(cat("call ", call, " element ", i, ": ", values[i], " instead of ", want));
    }
  }
}

}  // namespace plait::testing
