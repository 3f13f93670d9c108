// The start-up self-test: silent on a sound mesh, and names the pair when one rank's contribution is wrong.
#include <gtest/gtest.h>

#include "plait/base/error.h"
#include "plait/comm/launch.h"
#include "tests/comm/collective_cases.h"

namespace plait {
namespace {

// Passes everything on, but spoils what this rank contributes to one operation.
class FaultyGroup : public ProcessGroup {
 public:
  FaultyGroup(ProcessGroup& inner, std::string operation) : inner_(inner), operation_(std::move(operation)) {}
  int64_t rank() const override { return inner_.rank(); }
  int64_t size() const override { return inner_.size(); }
  const std::string& name() const override { return inner_.name(); }
  const std::vector<int64_t>& members() const override { return inner_.members(); }
  WorkPtr all_reduce(at::Tensor tensor, ReduceOp op) override {
    if (operation_ == "all_reduce") tensor.add_(tensor.ne(0).to(tensor.scalar_type()));
    return inner_.all_reduce(tensor, op);
  }
  WorkPtr all_gather(at::Tensor output, at::Tensor input) override { return inner_.all_gather(output, spoiled("all_gather", input)); }
  WorkPtr reduce_scatter(at::Tensor output, at::Tensor input) override {
    return inner_.reduce_scatter(output, spoiled("reduce_scatter", input));
  }
  WorkPtr broadcast(at::Tensor tensor, int64_t root) override { return inner_.broadcast(tensor, root); }
  WorkPtr send(at::Tensor tensor, int64_t destination, int tag) override {
    return inner_.send(spoiled("send/recv", tensor), destination, tag);
  }
  WorkPtr recv(at::Tensor tensor, int64_t source, int tag) override { return inner_.recv(tensor, source, tag); }
  void barrier() override { inner_.barrier(); }

 private:
  at::Tensor spoiled(const char* operation, const at::Tensor& x) const {
    return operation_ == operation ? x + x.ne(0).to(x.scalar_type()) : x;
  }
  ProcessGroup& inner_;
  std::string operation_;
};

ProcessGroupPtr borrowed(ProcessGroup& group) {
  return {&group, [](ProcessGroup*) {}};
}

TEST(SelfTest, SoundMeshesPass) {
  for (MeshLayout layout : {MeshLayout{1, 1, 1}, {2, 1, 1}, {1, 3, 1}, {2, 2, 2}, {1, 1, 4}})
    run_thread_ranks(layout, [](Mesh& mesh) { self_test(mesh); });
}

TEST(SelfTest, NamesGroupAndPair) {
  // World rank 3 is pipeline rank 1 of ranks (2, 3).
  for (const char* operation : {"all_reduce", "all_gather", "reduce_scatter", "send/recv"}) {
    std::atomic<int> named{0};
    EXPECT_THROW(run_thread_ranks({2, 2, 1},
                                  [&](Mesh& mesh) {
                                    FaultyGroup faulty(mesh.pipeline(), mesh.rank() == 3 ? operation : "");
                                    Mesh broken(mesh.layout(), mesh.rank(), borrowed(mesh.world()), borrowed(mesh.data()), borrowed(faulty),
                                                borrowed(mesh.tensor()));
                                    std::string message;
                                    try {
                                      self_test(broken);
                                    } catch (const Error& e) {
                                      message = e.what();
                                    }
                                    std::string want = cat(operation, " in group pipeline (ranks 2, 3): rank 2 got ");
                                    if (mesh.rank() == 2 && message.find(want) != std::string::npos &&
                                        message.find(" from rank 3 instead of ") != std::string::npos)
                                      ++named;
                                    if (mesh.rank() < 2 && !message.empty()) named += 100;  // a sound group is not blamed
                                    mesh.world().barrier();
                                    if (!message.empty()) throw std::runtime_error(message);
                                  }),
                 std::runtime_error);
    EXPECT_EQ(named, 1) << operation;
  }
}

}  // namespace
}  // namespace plait
