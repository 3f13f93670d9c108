// RingGroup: the collectives of a process group made of its sends and receives (plait/comm/row_exchange.h): a sum is shared out, each
// member sums its piece in group rank order, and the pieces go round. Same bits as the shared-memory and in-process collectives.
// Sends, receives and the barrier are the inner group's. Works move on in wait() and done() of any operation of this object, in order.
// Rank rule: as every process group; the inner group's members must use the other style for no operation that both could mean.
#pragma once

#include "plait/comm/process_group.h"

namespace plait {

// `inner` must outlive the result. Its members make one each, all or none.
ProcessGroupPtr make_ring_group(ProcessGroup& inner);

}  // namespace plait
