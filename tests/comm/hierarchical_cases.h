// Bodies of the tests of groups over several machines, the same for Gloo and MPI between them. As collective_cases.h.
#pragma once

#include "tests/comm/collective_cases.h"

namespace plait::testing {

// Ranks on machines a, b, a, b, b. Inside the machines in group order, then over the machines; 16-bit types in fp32, rounded once; the same
// bits everywhere.
inline void order_of_sums_case(Mesh& mesh) {
  for (auto type : {at::kFloat, at::kBFloat16, at::kHalf})
    for (int64_t n : {90, 50001}) {
      auto values = [&](int64_t rank) { return at::sin(at::arange(n, at::kDouble) * (rank + 1)).to(type); };
      auto wide = [&](int64_t rank) { return values(rank).to(at::kFloat); };
      at::Tensor want = ((wide(0) + wide(2)) + ((wide(1) + wide(3)) + wide(4))).to(type);
      at::Tensor got = values(mesh.rank());
      mesh.world().all_reduce(got)->wait();
      require_equal(got, want, cat("sum of ", c10::toString(type)));
      at::Tensor row = at::empty({n}, type), rows = values(mesh.rank()).repeat({5, 1}).contiguous();
      mesh.world().reduce_scatter(row, rows)->wait();
      require_equal(row, want, cat("scattered sum of ", c10::toString(type)));
    }
}

// A message that the next rank waits for while it has a large one to pass on, over every axis's groups.
inline void axes_and_messages_case(Mesh& mesh) {
  for (ProcessGroup* group : {&mesh.data(), &mesh.pipeline(), &mesh.tensor(), &mesh.world()}) {
    all_reduce_case(*group, at::kFloat, {4, 3});
    all_gather_case(*group, at::kBFloat16, {2, 3});
  }
  ProcessGroup& world = mesh.world();
  const int64_t n = world.size(), previous = (mesh.rank() + n - 1) % n;
  at::Tensor large = at::full({1500000}, static_cast<double>(mesh.rank())), got = at::zeros({1500000}), one = at::ones({2000});
  auto sent = world.send(large, (mesh.rank() + 1) % n, 5);
  auto sum = world.all_reduce(one);
  sum->wait();
  world.recv(got, previous, 5)->wait();
  sent->wait();
  require_equal(one, at::full({2000}, static_cast<double>(n)), "sum beside messages");
  require_equal(got, at::full({1500000}, static_cast<double>(previous)), "message");
}

// Ranks on machines a, a, b. Each wait needs what other ranks do only when an earlier long message of this rank has come.
inline void earlier_messages_case(Mesh& mesh) {
  auto chain = [](Mesh& mesh, const std::vector<int64_t>& ranks) {  // 0 -> 1 -> 2 -> 0 of `ranks`, the first message long
    ProcessGroup& world = mesh.world();
    const auto at = std::find(ranks.begin(), ranks.end(), mesh.rank()) - ranks.begin();
    at::Tensor large = at::full({3000000}, 4.0), small = at::full({5}, 6.0), got = at::zeros({at == 1 ? 3000000 : 5});
    const int64_t next = ranks[static_cast<size_t>((at + 1) % 3)], previous = ranks[static_cast<size_t>((at + 2) % 3)];
    WorkPtr sent = at == 0 ? world.send(large, next, 2) : nullptr;
    world.recv(got, previous, 2)->wait();
    if (at != 0) sent = world.send(small, next, 2);
    sent->wait();
    require_equal(got, at == 1 ? large : small, cat("message to place ", at));
  };
  for (int round = 0; round < 3; ++round) {
    chain(mesh, {0, 2, 1});  // waits for shared memory while what goes between the machines has something left
    chain(mesh, {0, 1, 2});  // and the other way round
    at::Tensor large = at::full({3000000}, 4.0), got = at::zeros({3000000}), sum = at::ones({1000});
    WorkPtr sent = mesh.rank() == 1 ? mesh.world().send(large, 2, 3) : nullptr;  // rank 1 leads no machine
    if (mesh.rank() == 2) mesh.world().recv(got, 1, 3)->wait();
    mesh.world().all_reduce(sum)->wait();
    if (sent) sent->wait();
    require_equal(sum, at::full({1000}, 3.0), "sum");
    if (mesh.rank() == 2) require_equal(got, large, "message before the sum");
  }
}

}  // namespace plait::testing
