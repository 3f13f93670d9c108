// DeepSpeed JSON: batch sizes, precision, optimizer, schedule, ZeRO stage 0. What needs an engine plait does not have (ZeRO stages, offload,
// activation checkpointing, compression, ...) is an error that says so; a key nobody knows is an error with the nearest known one.
// The value "auto" means what it means in Hugging Face: left out, flags or defaults decide. docs/deepspeed.md has every key.
#pragma once

#include <string>
#include <vector>

#include "plait/config/config.h"
#include "plait/config/translation.h"

namespace plait {

// DeepSpeed's own defaults where they differ from the native ones.
void set_deepspeed_defaults(Config* config);

// Reads a whole file; left-over keys are an Error(kUsage).
void translate_deepspeed(FileTranslator* file);

// After the layers are merged: turns the deepspeed.* entries (parts of a schedule that depend on the learning rate) into settings.
void finish_deepspeed(GivenSettings* given, std::vector<std::string>* notices);

}  // namespace plait
