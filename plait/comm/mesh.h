// Mesh: this rank's place in the grid and one process group an axis, plus world. Built once, passed by reference.
// Rank rule: the constructor is collective over all ranks of the world; groups are made in one fixed order.
#pragma once

#include <memory>
#include <string>

#include "plait/comm/process_group.h"
#include "plait/plan/mesh_layout.h"

namespace plait {

class Mesh {
 public:
  Mesh(MeshLayout layout, int64_t rank, ProcessGroupPtr world, ProcessGroupPtr data, ProcessGroupPtr pipeline, ProcessGroupPtr tensor)
      : layout_(layout), rank_(rank), coordinate_(layout.coordinate_of(rank)), world_(std::move(world)), data_(std::move(data)),
        pipeline_(std::move(pipeline)), tensor_(std::move(tensor)) {}

  const MeshLayout& layout() const { return layout_; }
  int64_t rank() const { return rank_; }
  Coordinate coordinate() const { return coordinate_; }
  ProcessGroup& world() const { return *world_; }
  ProcessGroup& data() const { return *data_; }
  ProcessGroup& pipeline() const { return *pipeline_; }
  ProcessGroup& tensor() const { return *tensor_; }

 private:
  MeshLayout layout_;
  int64_t rank_;
  Coordinate coordinate_;
  ProcessGroupPtr world_, data_, pipeline_, tensor_;
};

}  // namespace plait
