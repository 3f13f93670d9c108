// run_thread_ranks: ranks as threads of this process over one ThreadHub a process group.
#include <ATen/Parallel.h>

#include <exception>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>

#include "plait/base/error.h"
#include "plait/comm/backend_group.h"
#include "plait/comm/launch.h"
#include "plait/comm/thread_backend.h"

namespace plait {
namespace {

const char* thread_group_name(Axis axis) {
  switch (axis) {
    case Axis::kData: return "data";
    case Axis::kPipeline: return "pipeline";
    case Axis::kTensor: return "tensor";
    case Axis::kWorld: return "world";
  }
  return "?";
}

constexpr Axis kGroupOrder[] = {Axis::kWorld, Axis::kData, Axis::kPipeline, Axis::kTensor};

// Hubs by axis and first member, made before any rank runs.
using HubMap = std::map<std::pair<Axis, int64_t>, std::shared_ptr<detail::ThreadHub>>;

HubMap make_hubs(const MeshLayout& layout, detail::ThreadWorld& world, std::chrono::milliseconds timeout) {
  HubMap hubs;
  for (int64_t rank = 0; rank < layout.world_size(); ++rank) {
    for (Axis axis : kGroupOrder) {
      auto members = layout.group_ranks(axis, rank);
      auto& hub = hubs[{axis, members.front()}];
      if (hub || members.size() == 1) continue;
      hub = std::make_shared<detail::ThreadHub>(&world, thread_group_name(axis), members, timeout);
      world.add(hub);
    }
  }
  return hubs;
}

std::unique_ptr<Mesh> make_thread_mesh(const MeshLayout& layout, int64_t rank, HubMap& hubs) {
  std::string where = cat("rank ", rank, " (", to_string(layout.coordinate_of(rank)), ")");
  auto make = [&](Axis axis) {
    auto members = layout.group_ranks(axis, rank);
    int64_t group_rank = std::find(members.begin(), members.end(), rank) - members.begin();
    c10::intrusive_ptr<c10d::Backend> backend;
    if (members.size() > 1)
      backend = c10::make_intrusive<detail::ThreadBackend>(hubs.at({axis, members.front()}), static_cast<int>(group_rank));
    return detail::make_backend_group(std::move(backend), thread_group_name(axis), members, group_rank, where, at::kCPU);
  };
  return std::make_unique<Mesh>(layout, rank, make(Axis::kWorld), make(Axis::kData), make(Axis::kPipeline), make(Axis::kTensor));
}

}  // namespace

void run_thread_ranks(const MeshLayout& layout, const std::function<void(Mesh&)>& body, std::chrono::milliseconds timeout) {
  int64_t size = layout.world_size();
  PLAIT_CHECK(size >= 1, "a layout of ", size, " ranks");
  detail::ThreadWorld world(size);
  HubMap hubs = make_hubs(layout, world, timeout);
  std::mutex mutex;
  std::exception_ptr first;

  auto fail = [&](int64_t rank, std::exception_ptr error, const std::string& message) {
    {
      std::lock_guard<std::mutex> lock(mutex);
      if (!first) first = std::move(error);
    }
    world.fail(rank, message);
  };
  auto run_rank = [&](int64_t rank) {
    try {
      at::set_num_threads(1);
      auto mesh = make_thread_mesh(layout, rank, hubs);
      body(*mesh);
      world.end(rank);
    } catch (const std::exception& e) {
      fail(rank, std::current_exception(), e.what());
    } catch (...) {
      fail(rank, std::current_exception(), "unknown exception");
    }
  };
  std::vector<std::thread> threads;
  try {
    for (int64_t rank = 0; rank < size; ++rank) threads.emplace_back(run_rank, rank);
  } catch (const std::system_error& e) {  // those that run must not wait for one that never will
    const std::string message = cat("no thread for rank ", threads.size(), ": ", e.what());
    fail(static_cast<int64_t>(threads.size()), std::make_exception_ptr(Error(ExitCode::kResource, message)), message);
  }
  for (auto& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace plait
