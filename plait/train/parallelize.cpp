#include "plait/train/parallelize.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "plait/base/error.h"
#include "plait/comm/ring_group.h"
#include "plait/comm/shared_buffer.h"
#include "plait/data_parallel/network_notice.h"
#include "plait/plan/schedule_choice.h"
#include "plait/plan/stage_split.h"
#include "plait/train/pipeline_memory.h"

namespace plait {

namespace {

void build_stages(ParallelModel& model, const Config& config, const Mesh& mesh, const TensorParallelContext& context) {
  auto split = stage_layers(model.shape, model.pipeline, config);
  auto num_stages = static_cast<int64_t>(split.size());
  Parameter* word_embedding = nullptr;
  for (int64_t s : model.pipeline.stages_of_rank(mesh.coordinate().pp)) {
    StageSpec spec{s, num_stages, split[static_cast<size_t>(s)].begin, split[static_cast<size_t>(s)].size};
    model.stages.push_back(std::make_unique<StageModel>(model.store, model.shape, spec, model.head, context, word_embedding));
    if (model.stages.back()->word_embedding()) word_embedding = model.stages.back()->word_embedding();
  }
}

// p2p: the group's collectives made of its sends and receives. auto is collective: measured faster on one machine (docs/architecture.md).
ProcessGroup& in_style(CommStyle style, ProcessGroup& group, ProcessGroupPtr& ring) {
  if (style != CommStyle::kP2P || group.size() == 1) return group;
  ring = make_ring_group(group);
  return *ring;
}

// Gradients that go whole over the data axis lie where the other ranks read them.
ParameterStore::MakeZeros gradient_memory(const Config& config, const Mesh& mesh, at::Device device) {
  const CommConfig& comm = config.train.comm;
  const bool whole = comm.compression.algorithm == GradientCompression::kNone && comm.priority.data_parallel != CommStyle::kP2P;
  if (!device.is_cpu() || mesh.data().size() == 1 || !whole) return {};
  return [&data = mesh.data()](int64_t elements, at::ScalarType type) { return shared_zeros(data, elements, type); };
}

CompressionOptions compression_options(const Config& config, const Mesh& mesh) {
  CompressionOptions options;
  options.config = config.train.comm.compression;
  options.tensor_size = mesh.tensor().size();
  options.steps_may_skip = config.train.dtype == DType::kFloat16;
  options.seed = static_cast<uint64_t>(config.train.seed);
  return options;
}

// The plan of the settings; for schedule auto of what fits the memory that all ranks have. Evaluation needs a place for each stage only.
PipelinePlan settle_pipeline(const Config& config, ParallelModel& model, const Mesh& mesh, bool training) {
  const MeshLayout& layout = mesh.layout();
  const DistributedConfig& d = config.train.distributed;
  if (d.schedule != ScheduleKind::kAuto || layout.pp_size == 1) return plan_pipeline(layout.pp_size, config);
  const auto given = static_cast<int64_t>(d.pipeline_layers.size());
  if (!training) return {ScheduleKind::k1F1B, layout.pp_size, given > 0 ? given / layout.pp_size : 1};
  double memory = static_cast<double>(d.pipeline_memory_bytes);
  if (d.pipeline_memory_bytes == 0)
    memory = std::max(0.0, free_bytes_of_rank(mesh, model.device) - state_bytes(model.shape, layout, config));
  ScheduleChoice choice = choose_schedule(model.shape, layout, config, !model.device.is_cpu(), memory);
  model.notices = describe_choice(choice);
  return {choice.taken.kind, layout.pp_size, choice.taken.stages_a_rank};
}

// The pipeline rank that holds the other copy of a tied table.
int64_t tied_peer(const ParallelModel& model, const Mesh& mesh) {
  for (const auto& p : model.store.parameters())
    if (p->tied_across_stages) {
      int64_t first = model.pipeline.rank_of_stage(0), last = model.pipeline.last_stage_rank();
      return mesh.coordinate().pp == first ? last : first;
    }
  return -1;
}

}  // namespace

at::ScalarType scalar_type(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return at::kFloat;
    case DType::kBFloat16: return at::kBFloat16;
    case DType::kFloat16: return at::kHalf;
    case DType::kFloat64: return at::kDouble;
  }
  PLAIT_CHECK(false, "dtype");
  return at::kFloat;
}

MicroBatch to_device(MicroBatch batch, at::Device device) {
  if (device.is_cpu()) return batch;
  for (at::Tensor* t : {&batch.input_ids, &batch.positions, &batch.token_types, &batch.targets, &batch.key_mask})
    if (t->defined()) *t = t->to(device);
  return batch;
}

ModelShape shape_for_run(ModelShape shape, const Config& config, const HeadOptions& head) {
  if (config.train.dropout)
    shape.embedding_dropout = shape.hidden_dropout = shape.attention_dropout = shape.classifier_dropout = *config.train.dropout;
  if (head.task == Task::kTextClassification) shape.num_labels = head.num_labels;
  return shape;
}

std::unique_ptr<ParallelModel> parallelize(const Config& config, const ModelShape& shape, const HeadOptions& head, const Mesh& mesh,
                                           at::Device device, const ParallelizeOptions& options) {
  auto model = std::make_unique<ParallelModel>();
  model->shape = shape_for_run(shape, config, head);
  model->head = head;
  model->compute_type = scalar_type(config.train.dtype);
  model->device = device;

  // 1. Tensor parallelism, inside each layer.
  ProcessGroup& tensor = in_style(config.train.comm.priority.tensor_parallel, mesh.tensor(), model->tensor_ring);
  if (device.is_cpu() && tensor.size() > 1) model->tensor_pool = std::make_unique<SharedPool>(tensor);
  TensorParallelContext context{&tensor,
                                config.train.distributed.sequence_parallel && tensor.size() > 1,
                                &model->weight_gradients,
                                config.train.distributed.overlap_tensor_comm,
                                model->tensor_ring != nullptr,
                                model->tensor_pool.get()};
  // 2. Pipeline parallelism: which layers live here.
  model->pipeline = settle_pipeline(config, *model, mesh, options.training);
  build_stages(*model, config, mesh, context);
  // 3. Memory and values of this rank's shards only.
  model->store.allocate(model->compute_type, device, options.training, gradient_memory(config, mesh, device));
  if (options.seed_values) model->store.initialize(static_cast<uint64_t>(config.train.seed), options.all_random);
  for (auto& stage : model->stages) stage->bind();
  std::vector<StageModel*> stages;
  for (auto& stage : model->stages) stages.push_back(stage.get());
  model->executor =
      std::make_unique<PipelineExecutor>(stages, mesh.pipeline(), model->shape, model->compute_type, device, &model->weight_gradients);
  model->executor->set_receive_ahead(config.train.distributed.overlap_pipeline_comm);
  model->executor->set_border_codec(BorderCodec(config.train.comm.compression.pipeline, model->compute_type, device));
  if (!options.training) return model;
  // 4. Data parallelism: gradients over the data axis, during the last backward.
  ReducerOptions reducer{config.train.distributed.bucket_size_bytes, config.train.distributed.overlap_grad_reduce,
                         compression_options(config, mesh)};
  const auto gradient_size = static_cast<int64_t>(model->store.flat_gradients().element_size());
  if (std::string notice = network_notice(config, mesh.data(), gradient_size); !notice.empty()) model->notices.push_back(notice);
  model->reducer = std::make_unique<GradientReducer>(
      model->store, in_style(config.train.comm.priority.data_parallel, mesh.data(), model->data_ring), reducer);
  // 5. What is left: partial and replicated parameters over the tensor axis, tied ones over the pipeline axis.
  model->sync = std::make_unique<GradientSync>(model->store, mesh, GradientSyncOptions{tied_peer(*model, mesh)});
  // 6. The update of this rank's shards.
  model->optimizer = make_optimizer(model->store, config.train.optimizer);
  return model;
}

}  // namespace plait
