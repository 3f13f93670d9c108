// What the input files of a run hold, in short: ranks of different machines read files of their own, and a stale copy on one of them would
// train silently wrong. Ranks that meet compare these digests (rendezvous_options of the commands).
#pragma once

#include <string>
#include <vector>

#include "plait/train/run_inputs.h"

namespace plait {

struct InputContents {
  std::string name;    // "dataset.train.file", "model.path/config.json"
  std::string digest;  // equal where the contents are
  std::string path;    // on this machine, for messages
};

// config.json, tokenizer.json and the tokenised rows as a whole; of weights the names, types and shapes of all tensors and a sample of
// each tensor's bytes, at most a few MiB in all, so that a large model costs no time. Reads files, no communication.
std::vector<InputContents> input_contents(const RunInputs& inputs);

}  // namespace plait
