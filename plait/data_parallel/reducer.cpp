#include "plait/data_parallel/reducer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "plait/base/error.h"

namespace plait {

GradientReducer::GradientReducer(ParameterStore& store, ProcessGroup& data, ReducerOptions options)
    : store_(store), data_(data), options_(options) {
  if (options.bucket_size_bytes < 1)
    throw_error(ExitCode::kUsage, "train.distributed.bucket_size_bytes: ", options.bucket_size_bytes, " must be 1 or more");
  make_buckets();
  make_compressed();
  waiting_.resize(buckets_.size());
  unsent_ = buckets_.size();
  if (data_.size() > 1 && options_.overlap) store_.set_listener([this](Parameter& parameter) { parameter_done(parameter); });
}

// Filled from the end of memory, where gradients are ready first, so that the rest bucket is the one sent last.
void GradientReducer::make_buckets() {
  const auto& parameters = store_.parameters();
  const int64_t capacity = options_.bucket_size_bytes / static_cast<int64_t>(store_.flat_gradients().element_size());
  int64_t end = 0;
  for (auto it = parameters.rbegin(); it != parameters.rend(); ++it) {
    const Parameter& p = **it;
    if (buckets_.empty() || end - p.offset > capacity) {
      end = p.offset + p.numel;
      buckets_.push_back({p.offset, p.numel, 1});
    } else {
      buckets_.back() = {p.offset, end - p.offset, buckets_.back().num_parameters + 1};
    }
    places_[&p].bucket = buckets_.size();  // 1-based from the end
  }
  std::reverse(buckets_.begin(), buckets_.end());
  for (auto& [parameter, place] : places_) place.bucket = buckets_.size() - place.bucket;
}

void GradientReducer::make_compressed() {
  compressed_.resize(buckets_.size());
  const CommCompressionConfig& c = options_.compression.config;
  if (data_.size() == 1 || c.algorithm == GradientCompression::kNone) return;
  const auto element_size = static_cast<int64_t>(store_.flat_gradients().element_size());
  std::vector<std::vector<Parameter*>> members(buckets_.size());
  for (const auto& p : store_.parameters()) members[places_.at(p.get()).bucket].push_back(p.get());
  // Of this reducer's own messages over the data group: above the tags of row_exchange.h, and small, as some MPIs have few.
  constexpr int kFirstTag = 10000;
  for (size_t b = 0; b < buckets_.size(); ++b) {
    if (buckets_[b].size * element_size < c.threshold_bytes) continue;
    compressed_[b] = CompressedBucket::make(members[b], data_, options_.compression, kFirstTag + 2 * static_cast<int>(b));
    if (compressed_[b]) ++num_compressed_;
  }
}

GradientReducer::~GradientReducer() {
  if (data_.size() > 1 && options_.overlap) store_.set_listener({});
}

void GradientReducer::begin_last_backward() {
  PLAIT_CHECK(works_.empty(), "begin_last_backward() twice without finish()");
  armed_ = true;
  num_sent_early_ = 0;
  unsent_ = buckets_.size();
  for (auto& [parameter, place] : places_) place.done = false;
  for (size_t b = 0; b < buckets_.size(); ++b) waiting_[b] = buckets_[b].num_parameters;
  for (const auto& bucket : compressed_)
    if (bucket) bucket->expect();
}

void GradientReducer::parameter_done(const Parameter& parameter) {
  if (!armed_) return;
  auto it = places_.find(&parameter);
  PLAIT_CHECK(it != places_.end(), parameter.name, " is not of this store");
  Place& place = it->second;
  PLAIT_CHECK(place.bucket < unsent_, parameter.name, " got a gradient after its bucket was sent: begin_last_backward() came too early");
  if (place.done) return;
  place.done = true;
  --waiting_[place.bucket];
  for (size_t b = unsent_; b < compressed_.size(); ++b)
    if (compressed_[b]) compressed_[b]->advance();
  send_ready();
}

void GradientReducer::send_ready() {
  while (unsent_ > 0 && waiting_[unsent_ - 1] == 0) {
    send(--unsent_);
    ++num_sent_early_;
  }
}

void GradientReducer::send(size_t bucket) {
  if (buckets_[bucket].size == 0) return;
  if (compressed_[bucket]) return compressed_[bucket]->start(gradient_scale_);
  works_.push_back(data_.all_reduce(store_.flat_gradients().narrow(0, buckets_[bucket].begin, buckets_[bucket].size)));
}

void GradientReducer::finish() {
  at::NoGradGuard no_grad;
  if (!armed_) begin_last_backward();
  armed_ = false;
  if (data_.size() == 1) return;
  while (unsent_ > 0) send(--unsent_);
  // All second halves are on the way before the first is waited for; in the order of sending, which is the same on all ranks.
  for (size_t b = buckets_.size(); b-- > 0;)
    if (compressed_[b]) compressed_[b]->proceed();
  for (const WorkPtr& work : works_) work->wait();
  works_.clear();
  counts_ = {};
  for (size_t b = buckets_.size(); b-- > 0;) {
    const auto bytes = buckets_[b].size * static_cast<int64_t>(store_.flat_gradients().element_size());
    const auto plain = static_cast<double>(all_reduce_bytes(bytes, data_.size()));
    if (!compressed_[b]) {
      counts_.bytes_sent += plain;
      continue;
    }
    compressed_[b]->finish();
    const auto sent = static_cast<double>(compressed_[b]->bytes_sent());
    counts_.bytes_sent += sent;
    counts_.bytes_saved += plain - sent;
    counts_.residual_squares += compressed_[b]->residual_squares();
    counts_.value_squares += compressed_[b]->value_squares();
  }
}

void GradientReducer::settle(bool applied) {
  for (auto& bucket : compressed_)
    if (bucket) bucket->settle(applied);
}

std::vector<NamedTensor> GradientReducer::compression_state() {
  std::vector<NamedTensor> state;
  for (auto& bucket : compressed_)
    if (bucket)
      for (NamedTensor& tensor : bucket->state()) state.push_back(std::move(tensor));
  return state;
}

}  // namespace plait
