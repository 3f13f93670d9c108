#include "plait/model/forward_context.h"

namespace plait {

std::vector<SegmentRun> segment_runs(const std::vector<int64_t>& segment_offsets) {
  std::vector<SegmentRun> runs;
  for (size_t i = 0; i + 1 < segment_offsets.size(); ++i) {
    int64_t begin = segment_offsets[i], length = segment_offsets[i + 1] - begin;
    if (length == 0) continue;
    if (!runs.empty() && runs.back().length == length) ++runs.back().count;
    else runs.push_back({begin, 1, length});
  }
  return runs;
}

std::vector<int64_t> pack_runs(const std::vector<SegmentRun>& runs) {
  std::vector<int64_t> packed;
  for (const auto& run : runs) packed.insert(packed.end(), {run.begin, run.count, run.length});
  return packed;
}

std::vector<SegmentRun> unpack_runs(const std::vector<int64_t>& packed) {
  std::vector<SegmentRun> runs;
  for (size_t i = 0; i + 2 < packed.size(); i += 3) runs.push_back({packed[i], packed[i + 1], packed[i + 2]});
  return runs;
}

ForwardContext make_forward_context(const MicroBatch& batch, const ModelShape& shape, at::ScalarType compute_type, bool training,
                                    const DropoutStream& stream) {
  ForwardContext context{batch, segment_runs(batch.segment_offsets), {}, {}, {}, training && stream.active};
  if (shape.rotary) context.rotary = make_rotary_table(shape, batch.positions, compute_type == at::kDouble ? at::kDouble : at::kFloat);
  if (context.training) {
    context.token_keys = token_keys(stream.seed, static_cast<uint64_t>(stream.step), batch);
    context.sample_keys = sample_keys(stream.seed, static_cast<uint64_t>(stream.step), batch);
  }
  return context;
}

}  // namespace plait
