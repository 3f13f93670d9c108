// How messages are asked for by the names of the calls (set_comm_priority, enable_comm_compression), in every form of settings; in files of
// other systems also as the native section `comm`.
#include <string_view>

#include "plait/base/error.h"
#include "plait/base/text.h"
#include "plait/config/modelscope.h"

namespace plait {

namespace {

const std::string kPriority = "train.comm.priority.", kCompression = "train.comm.compression.";
constexpr const char* kPriorityNames[] = {"set_comm_priority", "comm_priority"};
constexpr const char* kCompressionNames[] = {"enable_comm_compression", "comm_compression"};

bool is_one_of(const std::string& word, const char* const (&names)[2]) { return word == names[0] || word == names[1]; }

// {tensor_parallel: p2p}, or [tensor_parallel, p2p] as in the call, or a list of such pairs.
void translate_priority(FileTranslator* file, const Place& priority) {
  if (!priority) return;
  if (priority.is_map() && !priority.node->entries.empty()) {
    for (const char* axis : {"tensor_parallel", "data_parallel"}) file->become(file->at(priority, axis), kPriority + axis);
    return;
  }
  std::vector<Place> items = priority.is_map() ? std::vector<Place>{} : file->items(priority);
  if (!items.empty() && items[0].node->kind == SettingNode::Kind::kSequence) {
    file->derive(priority, "train.comm.priority");
    for (const Place& pair : items) translate_priority(file, pair);
    return;
  }
  const std::string axis = items.empty() ? "" : file->text(items[0]);
  if (items.size() != 2 || (axis != "tensor_parallel" && axis != "data_parallel")) {
    const std::string near = nearest(axis, {"tensor_parallel", "data_parallel"});
    file->refuse(priority,
                 cat("give {tensor_parallel: STYLE, data_parallel: STYLE} or [AXIS, STYLE], with p2p, collective or auto, as in [",
                     near == "data_parallel" ? near.c_str() : "tensor_parallel", ", p2p]"));
  }
  file->derive(priority, kPriority + axis);
  file->become(items[1], kPriority + axis);
}

// {algorithm: fp8, threshold: 65536}, or [fp8, 65536] as in the call, or the algorithm alone.
void translate_compression(FileTranslator* file, const Place& compression) {
  if (!compression) return;
  if (!compression.is_map() || compression.node->entries.empty()) {
    std::vector<Place> items = compression.is_map() ? std::vector<Place>{} : file->items(compression);
    if (items.empty() || items.size() > 2 || (items[0].node->kind == SettingNode::Kind::kScalar && items[0].node->text == "true"))
      file->refuse(compression, "give ALGORITHM, [ALGORITHM, THRESHOLD] or {algorithm: ..., threshold: ...}, as in [fp8, 65536]");
    if (compression.node->kind == SettingNode::Kind::kSequence) file->derive(compression, "train.comm.compression");
    file->become(items[0], kCompression + "algorithm");
    if (items.size() == 2) file->become(items[1], kCompression + "threshold_bytes");
    return;
  }
  file->become(file->at(compression, "threshold"), kCompression + "threshold_bytes");
  for (const char* name : {"algorithm", "threshold_bytes", "rank", "ratio", "pipeline"})
    file->become(file->at(compression, name), kCompression + name);
}

}  // namespace

bool detail::is_message_call(const std::string& path) {
  for (const char* section : {"", "train.", "train.distributed."})
    if (path.rfind(section, 0) == 0)
      if (std::string word = path.substr(std::string_view(section).size());
          is_one_of(word, kPriorityNames) || is_one_of(word, kCompressionNames))
        return true;
  return false;
}

bool detail::collect_message_call(const std::string& path, const SettingNode& value, const std::string& origin, bool command_line,
                                  GivenSettings* out) {
  if (!is_message_call(path)) return false;
  if (value.is_null()) return true;
  TranslationNotes notes;
  FileTranslator file(value, out, &notes, command_line);
  const Place place{&value, path, origin, command_line};
  if (is_one_of(path.substr(path.rfind('.') + 1), kPriorityNames)) translate_priority(&file, place);
  else translate_compression(&file, place);
  for (const Place& left : file.left_over()) {
    const Place unknown{left.node, cat(path, ".", left.path), left.origin, command_line};
    const std::string near = file.nearest_known(unknown);
    throw_error(ExitCode::kUsage, left.origin, ": unknown key ", unknown.path, near.empty() ? "" : cat("; nearest known key: ", near));
  }
  return true;
}

void detail::translate_messages(FileTranslator* file, const Place& section) {
  for (const char* name : kPriorityNames) translate_priority(file, file->at(section, name));
  for (const char* name : kCompressionNames) translate_compression(file, file->at(section, name));
  Place comm = file->at(section, "comm");
  if (!comm.is_map()) return;
  file->become(file->at(comm, "backend"), "train.comm.backend");
  translate_priority(file, file->at(comm, "priority"));
  translate_compression(file, file->at(comm, "compression"));
}

}  // namespace plait
