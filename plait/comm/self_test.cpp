// self_test: every member contributes a value of its own in a place of its own, so a wrong place names the peer that it came from.
#include <cmath>

#include "plait/base/error.h"
#include "plait/comm/launch.h"

namespace plait {
namespace {

constexpr int kSelfTestTag = 7919;

// What member `peer` contributes for member `reader`; exact in fp32.
double contribution(int64_t peer, int64_t reader) { return static_cast<double>(1 + 3 * peer + 64 * reader); }

class GroupTest {
 public:
  explicit GroupTest(ProcessGroup& group) : group_(group), options_(at::TensorOptions().dtype(at::kFloat).device(group.device())) {}

  // "" or what is wrong.
  std::string run(bool with_messages) {
    all_reduce();
    all_gather();
    reduce_scatter();
    if (with_messages) ring();
    return problem_;
  }

 private:
  void expect(const char* operation, int64_t peer, double got, double want) {
    if (got == want || !problem_.empty()) return;
    const auto& members = group_.members();
    problem_ = cat("self-test of the collectives: ", operation, " in group ", group_.name(), " (ranks ", join(members), "): rank ",
                   members[static_cast<size_t>(group_.rank())], " got ", got, " from rank ", members[static_cast<size_t>(peer)],
                   " instead of ", want, "; this pair of ranks does not communicate correctly");
  }

  // got: one value a member.
  void expect_all(const char* operation, const at::Tensor& got, int64_t reader) {
    at::Tensor values = got.to(at::kCPU).contiguous();
    const float* data = values.const_data_ptr<float>();
    for (int64_t peer = 0; peer < group_.size(); ++peer) expect(operation, peer, data[peer], contribution(peer, reader));
  }

  at::Tensor own_values(int64_t reader) {
    at::Tensor x = at::zeros({group_.size()}, options_);
    x.narrow(0, group_.rank(), 1).fill_(contribution(group_.rank(), reader));
    return x;
  }

  void all_reduce() {
    at::Tensor x = own_values(0);
    group_.all_reduce(x)->wait();
    expect_all("all_reduce", x, 0);
  }

  void all_gather() {
    at::Tensor all = at::zeros({group_.size()}, options_);
    group_.all_gather(all, at::full({1}, contribution(group_.rank(), 0), options_))->wait();
    expect_all("all_gather", all, 0);
  }

  void reduce_scatter() {
    std::vector<at::Tensor> rows;
    for (int64_t reader = 0; reader < group_.size(); ++reader) rows.push_back(own_values(reader));
    at::Tensor own = at::zeros({1, group_.size()}, options_);
    group_.reduce_scatter(own, at::stack(rows))->wait();
    expect_all("reduce_scatter", own, group_.rank());
  }

  void ring() {
    int64_t next = (group_.rank() + 1) % group_.size(), previous = (group_.rank() + group_.size() - 1) % group_.size();
    at::Tensor out = at::full({1}, contribution(group_.rank(), next), options_), in = at::zeros({1}, options_);
    // NCCL orders messages by their calls: even ranks send first so that no ring waits for itself.
    WorkPtr first, second;
    if (group_.rank() % 2 == 0) {
      first = group_.send(out, next, kSelfTestTag);
      second = group_.recv(in, previous, kSelfTestTag);
    } else {
      first = group_.recv(in, previous, kSelfTestTag);
      second = group_.send(out, next, kSelfTestTag);
    }
    first->wait();
    second->wait();
    expect("send/recv", previous, in.to(at::kCPU).item<double>(), contribution(previous, group_.rank()));
  }

  ProcessGroup& group_;
  at::TensorOptions options_;
  std::string problem_;
};

}  // namespace

void self_test(const Mesh& mesh) {
  // All groups are run before anything is thrown: a rank that sees no fault must not be left waiting.
  std::string problem;
  for (ProcessGroup* group : {&mesh.data(), &mesh.pipeline(), &mesh.tensor(), &mesh.world()}) {
    if (group->size() == 1) continue;
    std::string found = GroupTest(*group).run(group != &mesh.world());
    if (problem.empty()) problem = found;
  }
  if (!problem.empty()) throw Error(ExitCode::kRendezvous, problem);
}

}  // namespace plait
