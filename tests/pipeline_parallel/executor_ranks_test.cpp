// The executor runs whatever a schedule says: hand-made orders, deferred weight gradients, forwards only; and refuses impossible ones.
// Parity of whole training runs over all schedules is in tests/train/pipeline_ranks_test.cpp.
#include "plait/pipeline_parallel/executor.h"

#include <mutex>

#include "tests/pipeline_parallel/small_pipeline.h"

namespace plait {
namespace {

using testing::NotedGroup;

struct Outcome : testing::RankResult {                // of all ranks together
  std::map<int64_t, std::vector<std::string>> notes;  // of each rank's pipeline group
  std::map<int64_t, int64_t> most_held;               // sends that each rank kept at one time
};

// One pipeline of schedule.pp_size ranks over `lengths` micro-batches.
Outcome run_pipeline(const Schedule& schedule, const std::vector<int64_t>& lengths, bool training = true, bool like_gloo = false) {
  Outcome outcome;
  std::mutex mutex;
  run_thread_ranks({.pp_size = schedule.pp_size}, [&](Mesh& mesh) {
    NotedGroup pipeline(mesh.pipeline(), like_gloo);
    testing::RankResult result = testing::run_rank(mesh, pipeline, schedule, lengths, training);
    EXPECT_EQ(pipeline.held, 0);
    std::lock_guard lock(mutex);
    outcome.loss += result.loss;
    outcome.announced += result.announced;
    if (!result.outputs.empty()) outcome.outputs = result.outputs;
    outcome.notes[mesh.rank()] = pipeline.notes;
    outcome.most_held[mesh.rank()] = pipeline.most_held;
    outcome.gradients.merge(result.gradients);
  });
  return outcome;
}

void expect_same(const Outcome& got, const Outcome& wanted) {
  EXPECT_NEAR(got.loss, wanted.loss, 1e-12 * std::abs(wanted.loss));
  ASSERT_EQ(got.gradients.size(), wanted.gradients.size());
  for (const auto& [name, gradient] : wanted.gradients)
    EXPECT_LE((got.gradients.at(name) - gradient).abs().max().item<double>(), 1e-12) << name;
}

Outcome reference(const std::vector<int64_t>& lengths) {
  return run_pipeline(make_schedule(ScheduleKind::kGPipe, 1, 1, static_cast<int64_t>(lengths.size())), lengths);
}

// Weight gradients held back to the end of each rank's list, or done right after each backward.
TEST(Executor, DeferredWeightGradients) {
  std::vector<int64_t> lengths = {7, 2, 9};
  Outcome wanted = reference(lengths);
  for (int64_t pp : {1, 2, 4}) {
    Schedule schedule = make_schedule(ScheduleKind::k1F1B, pp, 1, 3), late = schedule, early = schedule;
    for (size_t rank = 0; rank < late.actions.size(); ++rank) {
      for (int64_t m = 0; m < 3; ++m) late.actions[rank].push_back({static_cast<int64_t>(rank), ActionKind::kWeight, m});
      std::vector<Action> with;
      for (const Action& a : schedule.actions[rank]) {
        with.push_back(a);
        if (a.kind == ActionKind::kBackward) with.push_back({a.stage, ActionKind::kWeight, a.micro_batch});
      }
      early.actions[rank] = with;
    }
    expect_same(run_pipeline(late, lengths), wanted);
    expect_same(run_pipeline(early, lengths), wanted);
  }
}

// An order nobody generates: the last micro-batch first on its way forward.
TEST(Executor, HandMadeOrder) {
  Schedule schedule = parse_schedule(
      "mine 2 2 2\n"
      "0F1 0SF1 0F0 0SF0 0RB0 0B0 0RB1 0B1\n"
      "1RF1 1F1 1RF0 1F0 1B0 1SB0 1B1 1SB1\n");
  std::vector<int64_t> lengths = {3, 8};
  Outcome outcome = run_pipeline(schedule, lengths);
  expect_same(outcome, reference(lengths));
  EXPECT_EQ(outcome.outputs, (std::vector<int64_t>{1, 0}));
}

// Two stages of one rank that follow each other pass their tensors by hand.
TEST(Executor, NeighbouringStagesOfOneRankSendNothing) {
  std::vector<int64_t> lengths = {3, 8, 5};
  Schedule schedule = make_schedule(ScheduleKind::kZeroBubbleV, 2, 2, 3);
  Outcome outcome = run_pipeline(schedule, lengths);
  expect_same(outcome, reference(lengths));
  // Borders 0-1 and 2-3, forwards and backwards, 3 micro-batches: 6 sends of each rank.
  for (int64_t rank : {0, 1}) {
    const auto& notes = outcome.notes.at(rank);
    EXPECT_EQ(std::count_if(notes.begin(), notes.end(), [](const std::string& note) { return note.starts_with("send"); }), 6);
  }
  outcome = run_pipeline(make_forward_schedule(2, {0, 1, 1, 0}, 3), lengths, false);
  EXPECT_NEAR(outcome.loss, reference(lengths).loss, 1e-12 * outcome.loss);
  EXPECT_EQ(outcome.outputs, (std::vector<int64_t>{0, 1, 2}));
}

TEST(Executor, EmptyMicroBatchesAreLeftOut) {
  std::vector<int64_t> lengths = {0, 6, 0, 0, 4, 0};
  for (ScheduleKind kind : {ScheduleKind::kGPipe, ScheduleKind::k1F1B, ScheduleKind::kInterleaved1F1B, ScheduleKind::kZeroBubbleH1,
                            ScheduleKind::kZeroBubbleV}) {
    int64_t chunks = kind == ScheduleKind::kInterleaved1F1B ? 2 : 1;
    Outcome outcome = run_pipeline(make_schedule(kind, 2, chunks, 6), lengths);
    expect_same(outcome, run_pipeline(make_schedule(ScheduleKind::kGPipe, 1, 1, 6), lengths));
    EXPECT_EQ(outcome.outputs, (std::vector<int64_t>{1, 4}));
    EXPECT_EQ(outcome.announced, 2) << "once a rank, though the last micro-batch is empty";
  }
  Outcome nothing = run_pipeline(make_schedule(ScheduleKind::k1F1B, 2, 1, 3), {0, 0, 0});
  EXPECT_EQ(nothing.loss, 0);
  for (const auto& [name, gradient] : nothing.gradients) EXPECT_EQ(gradient.abs().max().item<double>(), 0) << name;
}

// Two receives are under way whenever the schedule has two more, never three; they are waited for in the schedule's order, and none is
// posted for an empty micro-batch (number 2 here).
TEST(Executor, ReceivesArePostedTwoAhead) {
  Outcome outcome = run_pipeline(make_schedule(ScheduleKind::kGPipe, 2, 1, 5), {3, 4, 0, 5, 2});
  auto without_sends = [&](int64_t rank) {
    std::vector<std::string> notes = outcome.notes.at(rank);
    std::erase_if(notes, [](const std::string& note) { return note.starts_with("send"); });
    return join(notes);
  };
  EXPECT_EQ(without_sends(1), "recv f0, recv f1, wait f0, recv f3, wait f1, recv f4, wait f3, wait f4");
  EXPECT_EQ(without_sends(0), "recv b0, recv b1, wait b0, recv b3, wait b1, recv b4, wait b3, wait b4");
  // Rank 0 has its first receives posted before it computes anything.
  EXPECT_EQ(outcome.notes.at(0)[1], "recv b1");
  EXPECT_EQ(outcome.notes.at(0)[2], "send f0");
  // One forward, one backward: gradients and activations alternate, two are under way all the same.
  outcome = run_pipeline(make_schedule(ScheduleKind::k1F1B, 2, 1, 4), {3, 4, 5, 2});
  for (int64_t rank : {0, 1}) {
    int64_t under_way = 0, most = 0, posted = 0;
    for (const auto& note : outcome.notes.at(rank)) {
      if (note.starts_with("send")) continue;
      bool is_wait = note.starts_with("wait");
      // When one is waited for, the next is posted already, but for the last one.
      if (is_wait && posted < 4) {
        EXPECT_EQ(under_way, 2) << note << " on rank " << rank;
      }
      under_way += is_wait ? -1 : 1;
      posted += is_wait ? 0 : 1;
      most = std::max(most, under_way);
    }
    EXPECT_EQ(most, 2);
    EXPECT_EQ(posted, 4);
  }
}

// What is kept does not grow with the number of micro-batches where sends cannot be asked for their end either.
TEST(Executor, SendsThatCannotBeAskedAreLetGo) {
  struct Case {
    ScheduleKind kind;
    int64_t pp_size, chunks;
  };
  for (const Case& c :
       {Case{ScheduleKind::k1F1B, 2, 1}, Case{ScheduleKind::k1F1B, 4, 1}, Case{ScheduleKind::kInterleaved1F1B, 2, 2},
        Case{ScheduleKind::kZeroBubbleH1, 4, 1}, Case{ScheduleKind::kZeroBubbleH2, 2, 1}, Case{ScheduleKind::kZeroBubbleV, 2, 2}}) {
    auto most_held = [&](size_t micro_batches) {
      Schedule schedule = make_schedule(c.kind, c.pp_size, c.chunks, static_cast<int64_t>(micro_batches));
      return run_pipeline(schedule, std::vector<int64_t>(micro_batches, 2), /*training=*/true, /*like_gloo=*/true).most_held;
    };
    const auto few = most_held(16), many = most_held(32);
    EXPECT_EQ(few, many) << make_schedule(c.kind, c.pp_size, c.chunks, 4).name << " on " << c.pp_size << " ranks";
    for (auto [rank, held] : few) EXPECT_LE(held, 4 * c.pp_size) << "rank " << rank;
  }
}

TEST(Executor, ForwardOnlyGivesTheLossAndNoGradient) {
  std::vector<int64_t> lengths = {5, 0, 9, 1};
  double wanted = reference(lengths).loss;
  for (int64_t chunks : {1, 2}) {
    Outcome outcome = run_pipeline(make_forward_schedule(2, chunks, 4), lengths, false);
    EXPECT_NEAR(outcome.loss, wanted, 1e-12 * wanted);
    EXPECT_EQ(outcome.announced, 0);
    for (const auto& [name, gradient] : outcome.gradients) EXPECT_EQ(gradient.abs().max().item<double>(), 0) << name;
  }
}

TEST(Executor, ImpossibleOrdersAreNamed) {
  for (const char* text : {"bad 1 1 1\n0B0 0F0\n", "bad 1 1 2\n0F0 0B0 0B1 0F1\n", "bad 1 1 1\n0F0\n"}) {
    Schedule schedule = parse_schedule(text);
    std::vector<int64_t> lengths(static_cast<size_t>(schedule.num_micro_batches), 4);
    try {
      run_pipeline(schedule, lengths);
      ADD_FAILURE() << "ran " << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kBug) << error.what();
      EXPECT_NE(std::string(error.what()).find("schedule"), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace plait
