// Tensors of shared_zeros: read in place by some ranks or by all, mixed with plain ones, without a barrier between calls.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <thread>

#include "plait/comm/shared_buffer.h"
#include "tests/comm/collective_cases.h"
#include "tests/comm/process_ranks.h"

namespace plait {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::vector<testing::ProcessResult> run_shared(int n, const std::function<void(ProcessGroup&)>& body,
                                               milliseconds timeout = milliseconds(60000)) {
  testing::Listener listener;
  return testing::run_processes(
      n,
      [&](int rank) {
        at::set_num_threads(1);
        auto options = testing::options_of(rank, n, listener, timeout);
        options.backend = "shm";
        auto mesh = connect_mesh({n, 1, 1}, options);
        body(mesh->world());
        mesh->world().barrier();
      },
      seconds(120));
}

void expect_fine(const std::vector<testing::ProcessResult>& results) {
  for (size_t i = 0; i < results.size(); ++i)
    EXPECT_EQ(results[i].exit_code, 0) << "rank " << i << " signal " << results[i].signal << ": " << results[i].message;
}

// Values of a type in a tensor of shared memory where `lent`.
at::Tensor placed(ProcessGroup& group, const at::Tensor& values, bool lent) {
  if (!lent) return values.clone();
  at::Tensor at = shared_zeros(group, values.numel(), values.scalar_type()).view(values.sizes());
  at.copy_(values);
  return at;
}

// Which ranks lend their tensors: all, none but one, all but one.
TEST(ShmInPlace, EveryOperationAndType) {
  for (int n : {2, 3})
    expect_fine(run_shared(n, [](ProcessGroup& group) {
      const int64_t size = group.size(), rank = group.rank();
      for (auto type : {at::kFloat, at::kBFloat16, at::kLong})
        for (int64_t length : {int64_t{90001}, int64_t{300000}})
          for (int who = 0; who < 3; ++who) {
            const bool lent = who == 0 || (who == 1) == (rank == 1);
            auto values = [&](int64_t r, int64_t salt) { return testing::rank_values(r, {length}, type, salt); };
            at::Tensor sum = values(0, 1);
            for (int64_t r = 1; r < size; ++r) sum = sum + values(r, 1);
            at::Tensor got = placed(group, values(rank, 1), lent);
            group.all_reduce(got)->wait();
            testing::require_equal(got, sum, "all_reduce");

            at::Tensor all = at::zeros({size * length}, type), input = placed(group, values(rank, 2), lent);
            group.all_gather(all, input)->wait();
            input.zero_();  // nobody reads it any more
            for (int64_t r = 0; r < size; ++r) testing::require_equal(all.narrow(0, r * length, length), values(r, 2), "all_gather");

            const int64_t share = length / size;
            at::Tensor part = at::zeros({share}, type), whole = placed(group, values(rank, 1).narrow(0, 0, share * size), lent);
            group.reduce_scatter(part, whole)->wait();
            whole.zero_();
            testing::require_equal(part, sum.narrow(0, rank * share, share), "reduce_scatter");

            at::Tensor sent = placed(group, values(rank, 3), lent);
            group.broadcast(sent, 1)->wait();
            testing::require_equal(sent, values(1, 3), "broadcast");
            sent.zero_();
          }
    }));
}

// The ranks' own parts of one buffer, as sharded gradients and weights lie: gathered in place, several under way, ranks late in turn.
TEST(ShmInPlace, PartsOfOneBufferBackToBack) {
  expect_fine(run_shared(4, [](ProcessGroup& group) {
    const int64_t n = 40000, size = group.size(), rank = group.rank();
    at::Tensor buffer = shared_zeros(group, 3 * size * n, at::kFloat);
    for (int64_t call = 0; call < 150; ++call) {
      if (call % size == rank) std::this_thread::sleep_for(std::chrono::microseconds(400));
      at::Tensor first = buffer.narrow(0, 0, size * n), second = buffer.narrow(0, size * n, size * n);
      first.fill_(static_cast<double>(rank + call));
      second.narrow(0, rank * n, n).fill_(static_cast<double>(rank * 1000 + call));
      auto sum = group.all_reduce(first);
      auto gathered = group.all_gather(second, second.narrow(0, rank * n, n));
      auto again = group.all_reduce(first);  // of the sums
      gathered->wait();
      again->wait();
      sum->wait();
      testing::require_equal(first, at::full({size * n}, static_cast<double>(4 * (6 + 4 * call))), cat("sum of sums ", call));
      for (int64_t r = 0; r < size; ++r)
        testing::require_equal(second.narrow(0, r * n, n), at::full({n}, static_cast<double>(r * 1000 + call)), cat("gathered ", call));
    }
  }));
}

// 20,000 calls of which every fourth is read in place.
TEST(ShmInPlace, TwentyThousandCalls) {
  expect_fine(run_shared(3, [](ProcessGroup& group) {
    const int64_t n = 33001;  // just above what is worth it
    at::Tensor lent = shared_zeros(group, n, at::kFloat), plain = at::zeros({n}), small = at::zeros({5});
    for (int64_t call = 0; call < 20000; ++call) {
      at::Tensor x = call % 4 == 0 ? lent : call % 4 == 1 ? plain : small;
      x.fill_(static_cast<double>(group.rank() + call % 977));
      group.all_reduce(x)->wait();
      const float want = static_cast<float>(3 + 3 * (call % 977));
      const float* got = x.const_data_ptr<float>();
      for (int64_t i : {int64_t{0}, x.numel() / 3, x.numel() / 2, x.numel() - 1})
        testing::require(got[i] == want, cat("call ", call, " element ", i, ": ", got[i], " instead of ", want));
    }
  }));
}

// Memory given back while peers still have it mapped, and made again: never the old one's values.
TEST(ShmInPlace, NewBuffersTakeTheNumbersOfOldOnes) {
  expect_fine(run_shared(2, [](ProcessGroup& group) {
    for (int64_t round = 0; round < 30; ++round) {
      at::Tensor x = shared_zeros(group, 60000 + round % 3, at::kDouble);
      testing::require(x.abs().max().item<double>() == 0, "zeros");
      x.fill_(static_cast<double>(group.rank() + round));
      group.all_reduce(x)->wait();
      testing::require_equal(x, at::full({60000 + round % 3}, static_cast<double>(1 + 2 * round), at::kDouble), "sum");
    }
  }));
}

// Messages read where they lie: receives posted before, after and in another order, plain ones between; the memory is the sender's again
// after its wait.
TEST(ShmInPlace, Messages) {
  expect_fine(run_shared(2, [](ProcessGroup& group) {
    const int64_t n = 70000, peer = 1 - group.rank();
    at::Tensor first = shared_zeros(group, n, at::kFloat), second = shared_zeros(group, n, at::kFloat), plain = at::zeros({n});
    for (int64_t round = 0; round < 60; ++round) {
      const std::vector<at::Tensor> out{first, plain, second.narrow(0, 100, n - 100)};
      std::vector<at::Tensor> in;
      for (const auto& x : out) in.push_back(at::zeros_like(x));
      std::vector<WorkPtr> sent, got;
      auto receive = [&](size_t i) { got.push_back(group.recv(in[i], peer, static_cast<int>(i))); };
      if (round % 3 == 0) receive(2);
      for (size_t i = 0; i < 3; ++i) {
        out[i].fill_(static_cast<double>(1000 * round + 10 * static_cast<int64_t>(i) + group.rank()));
        sent.push_back(group.send(out[i], peer, static_cast<int>(i)));
      }
      if (round % 4 == group.rank()) std::this_thread::sleep_for(std::chrono::microseconds(300));
      if (round % 3 == 1) sent[0]->wait();  // by the peer's progress in whatever it waits for
      if (round % 3 != 0) receive(2);
      receive(1);
      receive(0);
      for (auto& work : sent) work->wait();
      for (const auto& x : out) x.zero_();  // read by then
      for (auto& work : got) work->wait();
      for (size_t i = 0; i < 3; ++i)
        testing::require_equal(in[i], at::full_like(in[i], static_cast<double>(1000 * round + 10 * static_cast<int64_t>(i) + peer)),
                               cat("round ", round, " message ", i));
    }
  }));
}

TEST(ShmInPlace, PoolGivesOutWhatNobodyHolds) {
  expect_fine(run_shared(2, [](ProcessGroup& group) {
    SharedPool pool(group);
    testing::require(!pool.take({100}, at::kFloat).defined(), "too small to be read in place");
    at::Tensor a = pool.take({300, 200}, at::kFloat), b = pool.take({300, 200}, at::kFloat);
    void* of_a = a.data_ptr();
    testing::require(of_a != b.data_ptr() && a.is_contiguous() && !a.is_view(), "two at one time");
    at::Tensor part = a.narrow(0, 0, 10);
    a = at::Tensor();
    testing::require(pool.take({300, 200}, at::kFloat).data_ptr() != of_a, "a part is still held");
    part = at::Tensor();
    at::Tensor half = pool.take({300, 300}, at::kBFloat16);
    testing::require(half.data_ptr() == of_a && half.scalar_type() == at::kBFloat16, "used again, in another shape and type");
    half.fill_(group.rank() + 1.0);
    group.all_reduce(half)->wait();
    testing::require_equal(half, at::full({300, 300}, 3.0, at::kBFloat16), "sum");
  }));
}

TEST(ShmInPlace, ReaderOfAMessageThatDiesIsNamed) {
  auto results = run_shared(2, [](ProcessGroup& group) {
    at::Tensor x = shared_zeros(group, 100000, at::kFloat);
    group.barrier();
    if (group.rank() == 1) ::kill(::getpid(), SIGKILL);
    group.send(x, 1, 0)->wait();
  });
  EXPECT_EQ(results[0].exit_code, static_cast<int>(ExitCode::kPeerLost)) << results[0].message;
  EXPECT_NE(results[0].message.find("lost a peer: rank 1 (process"), std::string::npos) << results[0].message;
}

TEST(ShmInPlace, KilledRankIsNamed) {
  auto results = run_shared(3, [](ProcessGroup& group) {
    at::Tensor x = shared_zeros(group, 3000000, at::kFloat);
    for (int call = 0; call < 3; ++call) group.all_reduce(x)->wait();
    auto work = group.rank() == 1 ? WorkPtr() : group.all_reduce(x);
    if (group.rank() == 1) ::kill(::getpid(), SIGKILL);
    work->wait();
  });
  for (size_t rank : {0, 2}) {
    EXPECT_EQ(results[rank].exit_code, static_cast<int>(ExitCode::kPeerLost)) << results[rank].message;
    EXPECT_NE(results[rank].message.find("lost a peer: rank 1 (process"), std::string::npos) << results[rank].message;
    EXPECT_LT(results[rank].seconds - results[1].seconds, 1.0);
  }
}

}  // namespace
}  // namespace plait
