#include "plait/checkpoint/export.h"

#include <ATen/ATen.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <exception>
#include <filesystem>

#include "plait/base/atomic_file.h"
#include "plait/base/error.h"
#include "plait/checkpoint/export_plan.h"
#include "plait/checkpoint/file_runs.h"
#include "plait/checkpoint/model_folder.h"

namespace plait {

namespace {

constexpr size_t kBufferBytes = 4 << 20;

// A descriptor that closes itself.
class OutputFile {
 public:
  OutputFile(const std::string& path, int flags) : path_(path), descriptor_(::open(path.c_str(), O_WRONLY | O_CLOEXEC | flags, 0666)) {
    if (descriptor_ < 0) throw_file_error(flags & O_CREAT ? "create" : "open (all ranks must see one file system)", path, errno);
  }
  ~OutputFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void reserve(int64_t num_bytes) {
    if (int failed = ::posix_fallocate(descriptor_, 0, num_bytes); failed != 0)
      throw_file_error(cat("reserve ", num_bytes, " bytes for").c_str(), path_, failed);
  }
  void write_at(int64_t offset, const std::byte* data, size_t size) {
    while (size > 0) {
      ssize_t written = ::pwrite(descriptor_, data, size, offset);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) throw_file_error("write", path_, errno);
      data += written;
      offset += written;
      size -= static_cast<size_t>(written);
    }
  }
  void finish() {
    if (::fdatasync(descriptor_) != 0) throw_file_error("fsync", path_, errno);
    if (::close(std::exchange(descriptor_, -1)) != 0) throw_file_error("close", path_, errno);
  }

 private:
  std::string path_;
  int descriptor_;
};

// Converts runs into a bounded buffer and writes neighbours in one call.
class RunWriter {
 public:
  RunWriter(OutputFile& file, FileDType dtype, const std::string& name)
      : file_(file), dtype_(dtype), name_(name), width_(element_bytes(dtype)) {
    buffer_.reserve(kBufferBytes);
  }

  // `from`: the local storage; `begin`: byte of the file where the tensor starts.
  template <class From>
  void add(const From* from, const FileRun& run, int64_t begin) {
    for (int64_t done = 0; done < run.length;) {
      int64_t offset = begin + (run.file_begin + done) * width_;
      if (!buffer_.empty() && (offset != begin_ + static_cast<int64_t>(buffer_.size()) || buffer_.size() + 8 > kBufferBytes)) flush();
      if (buffer_.empty()) begin_ = offset;
      int64_t count =
          std::min<int64_t>(run.length - done, static_cast<int64_t>((kBufferBytes - buffer_.size()) / static_cast<size_t>(width_)));
      append(from + run.local_begin + done * run.local_stride, run.local_stride, count);
      done += count;
    }
    num_elements_ += run.length;
  }
  void flush() {
    file_.write_at(begin_, buffer_.data(), buffer_.size());
    buffer_.clear();
  }
  int64_t num_elements() const { return num_elements_; }

 private:
  template <class From>
  void append(const From* from, int64_t stride, int64_t count) {
    size_t at = buffer_.size();
    buffer_.resize(at + static_cast<size_t>(count * width_));
    std::byte* out = buffer_.data() + at;
    switch (dtype_) {
      case FileDType::kF64: return convert<double>(from, stride, count, out);
      case FileDType::kF32: return convert<float>(from, stride, count, out);
      case FileDType::kBF16: return convert<c10::BFloat16>(from, stride, count, out);
      case FileDType::kF16: return convert<c10::Half>(from, stride, count, out);
      default: PLAIT_CHECK(false, dtype_name(dtype_));
    }
  }
  template <class To, class From>
  void convert(const From* from, int64_t stride, int64_t count, std::byte* out) {
    if (std::is_same_v<From, To> && stride == 1) {
      std::memcpy(out, from, static_cast<size_t>(count) * sizeof(To));
      return;
    }
    for (int64_t i = 0; i < count; ++i) {
      To value = static_cast<To>(from[i * stride]);
      if (std::isinf(static_cast<double>(value)) && !std::isinf(static_cast<double>(from[i * stride])))
        throw_error(ExitCode::kNonFinite, "tensor ", name_, " holds ", from[i * stride], ", which is beyond the range of ",
                    dtype_name(dtype_), "; export in float32 or bfloat16 (export_dtype)");
      std::memcpy(out + i * static_cast<int64_t>(sizeof(To)), &value, sizeof(To));
    }
  }

  OutputFile& file_;
  FileDType dtype_;
  const std::string& name_;
  int64_t width_;
  std::vector<std::byte> buffer_;
  int64_t begin_ = 0, num_elements_ = 0;
};

// Runs the ranks through the phases in step: after each one all know whether all succeeded.
class Agreement {
 public:
  Agreement(ProcessGroup& world, at::Device device) : world_(world), device_(device) {}

  // Runs `phase` here, then throws on every rank when it failed on any: the own error where it happened, elsewhere one that names the rank.
  template <class Phase>
  void run(Phase&& phase) {
    std::exception_ptr mine;
    int64_t code = 0;
    std::string message;
    try {
      phase();
    } catch (const Error& error) {
      mine = std::current_exception();
      code = static_cast<int64_t>(error.code());
      message = error.what();
    } catch (const std::exception& error) {
      mine = std::current_exception();
      code = static_cast<int64_t>(ExitCode::kBug);
      message = error.what();
    }
    at::Tensor codes = at::zeros({world_.size()}, at::TensorOptions().dtype(at::kLong));
    codes.mutable_data_ptr<int64_t>()[world_.rank()] = code;
    codes = sum(codes);
    const auto* all = codes.const_data_ptr<int64_t>();
    int64_t failed = 0;
    while (failed < world_.size() && all[failed] == 0) ++failed;
    if (failed == world_.size()) return;
    message = broadcast_text(message, failed);
    if (mine) std::rethrow_exception(mine);
    throw_error(static_cast<ExitCode>(all[failed]), "rank ", failed, " failed while exporting the model: ", message);
  }
  at::Tensor sum(const at::Tensor& values) {
    at::Tensor there = values.to(device_).contiguous();
    world_.all_reduce(there)->wait();
    return there.cpu();
  }
  int64_t broadcast_number(int64_t value) {
    at::Tensor there = at::full({1}, value, at::TensorOptions().dtype(at::kLong)).to(device_);
    world_.broadcast(there, 0)->wait();
    return there.cpu().item<int64_t>();
  }

 private:
  std::string broadcast_text(const std::string& text, int64_t root) {
    constexpr size_t kWords = 128;
    at::Tensor words = at::zeros({static_cast<int64_t>(kWords)}, at::TensorOptions().dtype(at::kLong));
    auto* bytes = reinterpret_cast<char*>(words.mutable_data_ptr<int64_t>());
    std::memcpy(bytes, text.data(), std::min(text.size(), kWords * 8 - 1));
    at::Tensor there = words.to(device_);
    world_.broadcast(there, root)->wait();
    at::Tensor back = there.cpu();
    return reinterpret_cast<const char*>(back.const_data_ptr<int64_t>());
  }

  ProcessGroup& world_;
  at::Device device_;
};

void check_store(const ParameterStore& store, const ExportPlan& plan) {
  for (const auto& p : store.parameters()) {
    auto it = plan.tensors.find(p->name);
    PLAIT_CHECK(it != plan.tensors.end(), "parameter ", p->name, " is not in the list of the model's tensors");
    PLAIT_CHECK(it->second.shape == p->global_shape, p->name, ": parameter ", shape_text(p->global_shape), ", list ",
                shape_text(it->second.shape));
  }
}

// This rank's pieces, in the order of the store. Returns the number of elements.
int64_t write_pieces(const ParameterStore& store, const ExportPlan& plan, const std::string& folder) {
  std::vector<std::unique_ptr<OutputFile>> files(plan.files.size());
  int64_t written = 0;
  for (const auto& p : store.parameters()) {
    if (!p->owner || p->numel == 0) continue;
    const auto& planned = plan.tensors.at(p->name);
    auto& file = files[planned.file_index];
    if (!file) file = std::make_unique<OutputFile>(folder + "/" + plan.files[planned.file_index].name, 0);
    at::Tensor values = p->master.is_cpu() ? p->master : p->master.cpu();
    PLAIT_CHECK(values.is_contiguous(), p->name);
    RunWriter writer(*file, plan.dtype, p->name);
    for_each_file_run(*p, [&](const FileRun& run) {
      if (values.scalar_type() == at::kDouble) writer.add(values.const_data_ptr<double>(), run, planned.begin);
      else writer.add(values.const_data_ptr<float>(), run, planned.begin);
    });
    writer.flush();
    written += writer.num_elements();
  }
  for (auto& file : files)
    if (file) file->finish();
  return written;
}

void reserve_files(const ExportPlan& plan, const std::string& folder) {
  for (const auto& planned : plan.files) {
    OutputFile file(folder + "/" + planned.name, O_CREAT | O_EXCL);
    file.reserve(planned.num_bytes);
  }
}

void write_heads(const ExportPlan& plan, const std::string& folder, const ExportOptions& options) {
  for (const auto& planned : plan.files) {
    OutputFile file(folder + "/" + planned.name, 0);
    file.write_at(0, reinterpret_cast<const std::byte*>(planned.head.data()), planned.head.size());
    file.finish();
  }
  if (!plan.index_json.empty()) write_durable(folder + "/model.safetensors.index.json", plan.index_json);
  write_durable(folder + "/config.json", options.config_json);
  for (const auto& path : options.files_to_copy) copy_durable(path, folder + "/" + std::filesystem::path(path).filename().string());
}

}  // namespace

void export_model(const ParameterStore& store, const std::vector<TensorSpec>& all, Mesh& mesh, const ExportOptions& options) {
  bool first = mesh.rank() == 0, writes = mesh.coordinate().dp == 0;
  at::NoGradGuard no_grad;
  Agreement agreement(mesh.world(), store.flat_masters().device());
  ExportPlan plan = plan_export(all, options.dtype, options.max_shard_bytes, options.metadata);
  // Unlike any earlier export's: a file of an old temporary folder must never be opened by mistake.
  int64_t stamp = std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  std::string suffix = std::to_string(agreement.broadcast_number(stamp));
  std::unique_ptr<FolderSwap> swap;
  agreement.run([&] {
    check_store(store, plan);
    if (!first) return;
    swap = std::make_unique<FolderSwap>(options.folder, suffix);
    reserve_files(plan, swap->path());
  });
  std::string folder = FolderSwap::temporary_path(options.folder, suffix);
  int64_t written = 0;
  agreement.run([&] {
    if (writes) written = write_pieces(store, plan, folder);
  });
  int64_t total = agreement.sum(at::full({1}, written, at::TensorOptions().dtype(at::kLong))).item<int64_t>();
  PLAIT_CHECK(total == plan.num_elements, "export wrote ", total, " elements of ", plan.num_elements, ": some have no owner, or two");
  agreement.run([&] {
    if (!first) return;
    write_heads(plan, swap->path(), options);
    swap->commit();
  });
}

}  // namespace plait
