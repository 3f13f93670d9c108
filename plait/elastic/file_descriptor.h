// The class lies in base now; this name is kept for the folder's own includes.
#pragma once

#include "plait/base/file_descriptor.h"
