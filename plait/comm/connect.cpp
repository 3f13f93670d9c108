// connect_mesh: store, arrival of all ranks, one backend a process group, self-test.
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>
#include <csignal>

#include "plait/base/error.h"
#include "plait/base/log.h"
#include "plait/comm/backend_group.h"
#include "plait/comm/cuda_plugin.h"
#include "plait/comm/gloo.h"
#include "plait/comm/hierarchical_backend.h"
#include "plait/comm/launch.h"
#include "plait/comm/mpi_backend.h"
#include "plait/comm/mpi_beside_shm.h"
#include "plait/comm/rendezvous_store.h"
#include "plait/comm/shm_backend.h"

namespace plait {
namespace {

// Makes the backends of one rank; groups of one rank have none.
class BackendMaker {
 public:
  explicit BackendMaker(const RendezvousOptions& options) : options_(options) {
    if (options.backend == "nccl") {
      plugin_ = &detail::load_cuda_plugin();
      int devices = plugin_->device_count();
      if (options.local_rank >= devices)
        throw_error(ExitCode::kResource, "device cuda: local rank ", options.local_rank, " has no device of its own; this machine has ",
                    devices, " CUDA devices");
      plugin_->set_device(static_cast<int>(options.local_rank));
      device_ = at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(options.local_rank));
    } else if (options.backend != "gloo" && options.backend != "shm" && options.backend != "mpi" && options.backend != "auto") {
      throw_error(ExitCode::kUsage, "backend ", options.backend, " is unknown; known: auto, shm, gloo, nccl, mpi");
    }
  }

  at::Device device() const { return device_; }

  void connect() {
    if (options_.world_size == 1) return;
    auto joined = detail::join_job(options_);
    store_ = joined.store;
    // Writing to a rank that has just died must be an error that names it, not this rank's own death.
    std::signal(SIGPIPE, SIG_IGN);
    address_ = joined.address;
    if (options_.backend == "mpi")
      mpi_ = std::make_shared<detail::MpiRank>(c10::make_intrusive<c10d::PrefixStore>("plait", store_), options_.rank, options_.world_size,
                                               options_.local_world_size > 0 ? options_.local_world_size : options_.world_size,
                                               options_.timeout);
    if (options_.backend == "shm" || options_.backend == "auto" || mpi_)
      shm_ = std::make_shared<detail::ShmRank>(*c10::make_intrusive<c10d::PrefixStore>("plait", store_), options_.rank, options_.world_size,
                                               options_.timeout, options_.machine.empty() ? detail::machine_identity() : options_.machine);
    const bool misses_it = options_.backend == "auto" || (mpi_ && spans_machines());
    if (shm_ && !shm_->problem().empty() && misses_it && options_.local_rank == 0)
      log_warning("the ranks of this machine share no memory (", shm_->problem(), "); ", mpi_ ? "mpi" : "gloo", " carries their messages");
    if (mpi_ && shm_->problem().empty()) mpi_beside_shm_ = std::make_shared<detail::MpiBesideShm>(mpi_, shm_);
  }

  c10::intrusive_ptr<c10d::Backend> make(const std::string& name, const std::vector<int64_t>& members, int64_t group_rank) {
    mpi_tag_ += kMpiTagsOfGroup;  // on all ranks alike, whatever connections their group needs
    if (members.size() == 1) return {};
    auto store = c10::make_intrusive<c10d::PrefixStore>(cat("plait/", name, "/", members.front()), store_);
    int rank = static_cast<int>(group_rank), size = static_cast<int>(members.size());
    if (plugin_)
      return c10::intrusive_ptr<c10d::Backend>::reclaim(
          plugin_->make_nccl(store.get(), rank, size, options_.timeout.count(), static_cast<int>(options_.local_rank), is_urgent(name)));
    if (shm_ && !mpi_ && shm_->shares_machine(members)) return c10::make_intrusive<detail::ShmBackend>(shm_, *store, members, rank);
    if (options_.backend == "shm")
      throw_error(ExitCode::kUsage, "train.comm.backend shm: the ranks ", join(members), " of group ", name,
                  shm_->problem().empty() ? " do not run on one machine (with the same process ids, user and host name)"
                                          : cat(" share no memory (", shm_->problem(), ")"),
                  "; nearest valid value auto, which takes gloo for such groups");
    if (auto machines = hierarchy_of(members); !machines.empty()) return make_hierarchy(store, std::move(machines), members, rank);
    if (mpi_) return c10::make_intrusive<detail::MpiBackend>(mpi_, members, rank, mpi_tag_);
    return make_gloo(store, rank, size);
  }

 private:
  static constexpr int kMpiTagsOfGroup = 2;  // all members, leaders

  // As far as the launcher, or what was found out, says so.
  bool spans_machines() const {
    if (options_.local_world_size > 0 && options_.local_world_size < options_.world_size) return true;
    for (int64_t r = 1; r < options_.world_size; ++r)
      if (shm_->machine_of(r) != shm_->machine_of(0)) return true;
    return false;
  }

  c10::intrusive_ptr<c10d::Backend> make_gloo(c10::intrusive_ptr<c10d::Store> store, int rank, int size) {
    if (!gloo_) gloo_ = std::make_unique<detail::GlooFactory>(address_);
    return gloo_->make(std::move(store), rank, size, options_.timeout);
  }

  // The members by machine where that is worth it: there are several, memory is shared on all of them, and one holds several members. Else
  // nothing.
  std::vector<std::vector<int>> hierarchy_of(const std::vector<int64_t>& members) const {
    if (!shm_) return {};
    for (int64_t member : members)
      if (shm_->machine_of(member) < 0) return {};
    auto machines = detail::members_by_machine(members, *shm_);
    return machines.size() > 1 && machines.size() < members.size() ? machines : std::vector<std::vector<int>>();
  }

  c10::intrusive_ptr<c10d::Backend> make_hierarchy(const c10::intrusive_ptr<c10d::PrefixStore>& store,
                                                   std::vector<std::vector<int>> machines, const std::vector<int64_t>& members, int rank) {
    detail::HierarchyLinks links;
    std::vector<int64_t> leaders;
    for (const auto& there : machines) leaders.push_back(members[static_cast<size_t>(there.front())]);
    for (size_t m = 0; m < machines.size(); ++m) {
      const auto here = std::find(machines[m].begin(), machines[m].end(), rank);
      if (here == machines[m].end()) continue;
      std::vector<int64_t> local;
      for (int member : machines[m]) local.push_back(members[static_cast<size_t>(member)]);
      if (local.size() > 1) {
        c10d::PrefixStore inner(cat("machine/", m), store);
        links.inner = c10::make_intrusive<detail::ShmBackend>(shm_, inner, local, static_cast<int>(here - machines[m].begin()));
      }
      if (here != machines[m].begin()) continue;
      const int leader = static_cast<int>(m);
      if (mpi_)
        links.leaders = c10::make_intrusive<detail::MpiBackend>(mpi_, leaders, leader, mpi_tag_ + 1, detail::MpiBackend::Use::kOneByOne);
      else links.leaders = make_gloo(c10::make_intrusive<c10d::PrefixStore>("leaders", store), leader, static_cast<int>(leaders.size()));
    }
    const int size = static_cast<int>(members.size());
    if (mpi_) links.all = c10::make_intrusive<detail::MpiBackend>(mpi_, members, rank, mpi_tag_);
    else links.all = make_gloo(c10::make_intrusive<c10d::PrefixStore>("all", store), rank, size);
    links.mpi = mpi_beside_shm_;
    links.machines = std::move(machines);
    return c10::make_intrusive<detail::HierarchicalBackend>(shm_, std::move(links), rank, size);
  }

  bool is_urgent(const std::string& name) const {
    return std::find(options_.urgent_groups.begin(), options_.urgent_groups.end(), name) != options_.urgent_groups.end();
  }

  const RendezvousOptions& options_;
  const detail::CudaPlugin* plugin_ = nullptr;
  at::Device device_ = at::kCPU;
  c10::intrusive_ptr<c10d::Store> store_;
  std::string address_;  // of this rank, for its peers on other machines
  std::shared_ptr<detail::ShmRank> shm_;
  std::shared_ptr<detail::MpiRank> mpi_;
  std::shared_ptr<detail::MpiBesideShm> mpi_beside_shm_;
  int mpi_tag_ = 0;
  std::unique_ptr<detail::GlooFactory> gloo_;
};

ProcessGroupPtr make_axis_group(BackendMaker& maker, const MeshLayout& layout, int64_t rank, Axis axis, const char* name) {
  auto members = layout.group_ranks(axis, rank);
  int64_t group_rank = std::find(members.begin(), members.end(), rank) - members.begin();
  std::string where = cat("rank ", rank, " (", to_string(layout.coordinate_of(rank)), ")");
  try {
    auto backend = maker.make(name, members, group_rank);
    return detail::make_backend_group(std::move(backend), name, members, group_rank, where, maker.device());
  } catch (const Error&) {
    throw;
  } catch (const std::exception& e) {
    std::string cause = e.what();
    bool lost = dynamic_cast<const detail::ShmPeerLost*>(&e) ||
                (cause.find("onnection") != std::string::npos && cause.find("imed out") == std::string::npos);
    throw_error(lost ? ExitCode::kPeerLost : ExitCode::kRendezvous, where, ": group ", name, " (ranks ", join(members),
                ") did not connect: ", cause.substr(0, cause.find('\n')));
  }
}

}  // namespace

std::unique_ptr<Mesh> connect_mesh(const MeshLayout& layout, const RendezvousOptions& options) {
  PLAIT_CHECK(layout.world_size() == options.world_size && options.rank >= 0 && options.rank < options.world_size, "rank ", options.rank,
              " of ", options.world_size, " in a layout of ", layout.world_size());
  BackendMaker maker(options);
  maker.connect();
  auto make = [&](Axis axis, const char* name) { return make_axis_group(maker, layout, options.rank, axis, name); };
  auto world = make(Axis::kWorld, "world");
  auto data = make(Axis::kData, "data");
  auto pipeline = make(Axis::kPipeline, "pipeline");
  auto tensor = make(Axis::kTensor, "tensor");
  auto mesh = std::make_unique<Mesh>(layout, options.rank, world, data, pipeline, tensor);
  self_test(*mesh);
  return mesh;
}

}  // namespace plait
