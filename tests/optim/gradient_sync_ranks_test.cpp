#include "plait/optim/gradient_sync.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

#include "plait/base/error.h"
#include "plait/comm/launch.h"

namespace plait {
namespace {

Parameter parameter_of(const std::string& name, std::vector<int64_t> shape) {
  Parameter p;
  p.name = name;
  p.global_shape = p.local_shape = std::move(shape);
  p.owner_stages = {0};
  return p;
}

// Gradient share of one rank: differs in every coordinate.
at::Tensor share(const Parameter& p, int64_t rank, int64_t salt, at::ScalarType type) {
  at::Tensor i = at::arange(p.numel, at::kDouble);
  return at::sin(i * 0.7 + static_cast<double>(rank * 13 + salt)).to(type).view(p.local_shape);
}

double tolerance_of(at::ScalarType type) { return type == at::kDouble ? 1e-14 : 1e-6; }

TEST(GradientSync, PartialGradientsAreSummedOverTensorRanks) {
  for (at::ScalarType type : {at::kFloat, at::kDouble})
    for (int64_t tp_size : {1, 2, 3, 4}) {
      std::vector<at::Tensor> results(static_cast<size_t>(tp_size));
      run_thread_ranks({1, 1, tp_size}, [&](Mesh& mesh) {
        ParameterStore store;
        Parameter norm = parameter_of("norm", {33});
        norm.partial_over_tp = true;
        store.declare(norm);
        store.declare(parameter_of("own", {8, 3}));
        Parameter bias = parameter_of("bias", {5});
        bias.partial_over_tp = true;
        store.declare(bias);
        store.allocate(type, at::kCPU);
        GradientSync sync(store, mesh, {});
        for (int round = 0; round < 2; ++round) {  // buffers are used again
          for (int64_t i = 0; i < 3; ++i) {
            Parameter& p = *store.parameters()[static_cast<size_t>(i)];
            p.gradient.copy_(share(p, mesh.rank(), i + round, type));
          }
          sync.sync();
          for (int64_t i : {0, 2}) {
            Parameter& p = *store.parameters()[static_cast<size_t>(i)];
            at::Tensor want = at::zeros(p.local_shape, at::kDouble);
            for (int64_t r = 0; r < tp_size; ++r) want += share(p, r, i + round, type).to(at::kDouble);
            EXPECT_TRUE(at::allclose(p.gradient.to(at::kDouble), want, 1e-5, tolerance_of(type))) << p.name;
          }
          EXPECT_TRUE(at::equal(store.parameters()[1]->gradient, share(*store.parameters()[1], mesh.rank(), 1 + round, type)));
        }
        results[static_cast<size_t>(mesh.rank())] = store.parameters()[0]->gradient.clone();
      });
      for (const at::Tensor& result : results) EXPECT_TRUE(at::equal(result, results[0]));
    }
}

// Each KV shard lies on kv_replicas neighbouring tensor ranks; only those add up. k and v lie in one fused matrix.
TEST(GradientSync, KvReplicasAreSummedWithinTheirShard) {
  struct Case {
    int64_t tp_size, kv_shards;
  };
  for (Case c : {Case{2, 1}, {4, 2}, {4, 1}, {6, 3}, {6, 2}}) {
    const int64_t replicas = c.tp_size / c.kv_shards;
    std::vector<at::Tensor> results(static_cast<size_t>(c.tp_size));
    run_thread_ranks({1, 1, c.tp_size}, [&](Mesh& mesh) {
      ParameterStore store;
      store.declare(parameter_of("q", {4, 6}));
      for (const char* name : {"k", "v"}) {
        Parameter p = parameter_of(name, {2, 6});
        p.kv_replicas = replicas;
        p.kv_shards = c.kv_shards;
        p.follows_previous = true;
        store.declare(p);
      }
      Parameter norm = parameter_of("norm", {7});
      norm.partial_over_tp = true;
      store.declare(norm);
      store.allocate(at::kDouble, at::kCPU);
      GradientSync sync(store, mesh, {});
      for (int round = 0; round < 2; ++round) {
        for (int64_t i = 0; i < 4; ++i)
          store.parameters()[static_cast<size_t>(i)]->gradient.copy_(
              share(*store.parameters()[static_cast<size_t>(i)], mesh.rank(), i, at::kDouble));
        sync.sync();
      }
      const int64_t shard = mesh.rank() / replicas;
      for (int64_t i = 0; i < 4; ++i) {
        Parameter& p = *store.parameters()[static_cast<size_t>(i)];
        at::Tensor want = at::zeros(p.local_shape, at::kDouble);
        const int64_t begin = i == 0 ? mesh.rank() : i == 3 ? 0 : shard * replicas;
        const int64_t end = i == 0 ? begin + 1 : i == 3 ? c.tp_size : begin + replicas;
        for (int64_t r = begin; r < end; ++r) want += share(p, r, i, at::kDouble);
        EXPECT_TRUE(at::allclose(p.gradient, want, 0, 1e-14)) << p.name << " tp " << c.tp_size << " shards " << c.kv_shards;
      }
      results[static_cast<size_t>(mesh.rank())] = store.parameters()[1]->gradient.clone();
    });
    for (int64_t r = 0; r < c.tp_size; ++r)
      EXPECT_TRUE(at::equal(results[static_cast<size_t>(r)], results[static_cast<size_t>(r / replicas * replicas)]));
  }
}

// First and last stage hold the table, at other offsets; the stages between take no part.
TEST(GradientSync, TiedCopiesBecomeBitEqual) {
  for (at::ScalarType type : {at::kFloat, at::kDouble})
    for (MeshLayout layout : {MeshLayout{1, 2, 1}, {1, 3, 1}, {2, 4, 1}, {1, 3, 2}}) {
      std::vector<at::Tensor> results(static_cast<size_t>(layout.world_size()));
      run_thread_ranks(layout, [&](Mesh& mesh) {
        const int64_t pp = mesh.coordinate().pp, last = layout.pp_size - 1;
        const bool owner = pp == 0 || pp == last;
        ParameterStore store;
        Parameter other = parameter_of("other", {pp + 3});
        Parameter table = parameter_of("table", {61, 4});
        table.tied_across_stages = true;
        if (pp == last) store.declare(other);
        if (owner) store.declare(table);
        if (pp != last) store.declare(other);
        store.allocate(type, at::kCPU);
        GradientSyncOptions options;
        if (owner) options.tied_peer = pp == 0 ? last : 0;
        GradientSync sync(store, mesh, options);
        for (int round = 0; round < 3; ++round) {
          for (const auto& p : store.parameters()) p->gradient.copy_(share(*p, mesh.rank(), round, type));
          sync.sync();
        }
        for (const auto& p : store.parameters()) {
          at::Tensor want = share(*p, mesh.rank(), 2, type);
          if (p->tied_across_stages) {
            Coordinate peer = mesh.coordinate();
            peer.pp = pp == 0 ? last : 0;
            want = want + share(*p, layout.rank_of(peer), 2, type);
            results[static_cast<size_t>(mesh.rank())] = p->gradient.clone();
          }
          EXPECT_TRUE(at::equal(p->gradient, want)) << p->name;
        }
      });
      for (int64_t r = 0; r < layout.world_size(); ++r) {
        Coordinate c = layout.coordinate_of(r);
        if (c.pp != 0) continue;
        c.pp = layout.pp_size - 1;
        EXPECT_TRUE(at::equal(results[static_cast<size_t>(r)], results[static_cast<size_t>(layout.rank_of(c))]));
      }
    }
}

TEST(GradientSync, RefusesContradictions) {
  run_thread_ranks({1, 1, 2}, [](Mesh& mesh) {
    ParameterStore store;
    Parameter k = parameter_of("k", {4});
    k.kv_replicas = 2;
    k.kv_shards = 2;
    store.declare(k);
    store.allocate(at::kFloat, at::kCPU);
    EXPECT_THROW(GradientSync(store, mesh, {}), Error);
  });
  run_thread_ranks({1, 2, 1}, [](Mesh& mesh) {
    ParameterStore store;
    Parameter table = parameter_of("table", {4});
    table.tied_across_stages = true;
    store.declare(table);
    store.allocate(at::kFloat, at::kCPU);
    EXPECT_THROW(GradientSync(store, mesh, {}), Error);
    EXPECT_THROW(GradientSync(store, mesh, GradientSyncOptions{mesh.pipeline().rank()}), Error);
  });
}

}  // namespace
}  // namespace plait
