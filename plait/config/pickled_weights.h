// Pickled weights in a model folder. A pickle can run any program, so plait never reads one; what it can do is say how to convert it.
#pragma once

#include <string>

namespace plait {

// A sentence that names the pickled weights of `folder` and the one line that converts them: files of a Megatron model of ModelScope
// (mp_rank_XX_model_states.pt, also below model/), pytorch_model.bin and its like. "" when there are none.
std::string pickled_weights_advice(const std::string& folder);

// True when the folder holds mp_rank_XX_model_states.pt files.
bool has_megatron_weights(const std::string& folder);

}  // namespace plait
