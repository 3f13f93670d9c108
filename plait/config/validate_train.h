// The parts of validate() about the course of training: learning rate, loss scale, early stop, saved weights, event files.
// A setting that has no effect with the others is refused when it says anything but its default.
#pragma once

#include "plait/config/config.h"

namespace plait {

// Error(kUsage), as validate().
void check_lr_scheduler(const Config& config);
void check_loss_scale(const Config& config);
void check_run_outputs(const Config& config);

}  // namespace plait
