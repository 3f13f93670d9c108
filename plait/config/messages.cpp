// How messages are asked for in files of other systems: by the names of the calls (set_comm_priority, enable_comm_compression), or as the
// native section `comm`.
#include "plait/base/error.h"
#include "plait/config/modelscope.h"

namespace plait {

namespace {

const std::string kPriority = "train.comm.priority.", kCompression = "train.comm.compression.";

// {tensor_parallel: p2p}, or [tensor_parallel, p2p] as in the call, or a list of such pairs.
void translate_priority(FileTranslator* file, const Place& priority) {
  if (!priority) return;
  if (priority.is_map()) {
    for (const char* axis : {"tensor_parallel", "data_parallel"}) file->become(file->at(priority, axis), kPriority + axis);
    return;
  }
  std::vector<Place> items = file->items(priority);
  if (!items.empty() && items[0].node->kind == SettingNode::Kind::kSequence) {
    file->derive(priority, "train.comm.priority");
    for (const Place& pair : items) translate_priority(file, pair);
    return;
  }
  std::string axis = items.empty() ? "" : file->text(items[0]);
  if (items.size() != 2 || (axis != "tensor_parallel" && axis != "data_parallel"))
    file->refuse(priority, "give {tensor_parallel: STYLE, data_parallel: STYLE} or [AXIS, STYLE], with p2p, collective or auto");
  file->derive(priority, kPriority + axis);
  file->become(items[1], kPriority + axis);
}

// {algorithm: fp8, threshold: 65536}, or [fp8, 65536] as in the call, or the algorithm alone.
void translate_compression(FileTranslator* file, const Place& compression) {
  if (!compression) return;
  if (!compression.is_map()) {
    std::vector<Place> items = file->items(compression);
    if (items.empty() || items.size() > 2)
      file->refuse(compression, "give ALGORITHM, [ALGORITHM, THRESHOLD] or a section with these names");
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

void detail::translate_messages(FileTranslator* file, const Place& section) {
  for (const char* name : {"set_comm_priority", "comm_priority"}) translate_priority(file, file->at(section, name));
  for (const char* name : {"enable_comm_compression", "comm_compression"}) translate_compression(file, file->at(section, name));
  Place comm = file->at(section, "comm");
  if (!comm.is_map()) return;
  file->become(file->at(comm, "backend"), "train.comm.backend");
  translate_priority(file, file->at(comm, "priority"));
  translate_compression(file, file->at(comm, "compression"));
}

}  // namespace plait
