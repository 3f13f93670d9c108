// The parts of validate() about the course of training: learning rate, loss scale, early stop, saved weights, event files, and how
// gradients and borders are sent.
// A setting that has no effect with the others is refused when it says anything but its default.
#pragma once

#include <string>
#include <vector>

#include "plait/config/config.h"

namespace plait {

// Error(kUsage), as validate().
void check_lr_scheduler(const Config& config);
void check_loss_scale(const Config& config);
void check_run_outputs(const Config& config);
void check_compression(const Config& config);

// Wishes about messages, overlap and loss scale that change nothing with these sizes or types, a line each.
void report_messages_without_effect(const Config& config, std::vector<std::string>* notices);

}  // namespace plait
