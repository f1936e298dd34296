#include "server/startup/listing.h"

#include <span>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/expert/presets/listing.h"
#include "core/io/read_backend.h"
#include "core/kernels/backend.h"
#include "core/model/family.h"
#include "core/quant/format.h"

namespace moed {
namespace {

std::vector<ListedRow> ListedComputeBackends() {
  std::vector<ListedRow> listed;
  for (const ComputeBackendRow& row : ComputeBackends()) {
    listed.push_back({row.name, row.supported() ? "works here" : std::string(row.refusal().message())});
  }
  return listed;
}

template <class Row>
std::vector<ListedRow> Names(std::span<const Row> rows, std::string_view Row::*name) {
  std::vector<ListedRow> listed;
  for (const Row& row : rows) listed.push_back({row.*name, ""});
  return listed;
}

}  // namespace

std::string ListTables() {
  return ListParts() + ListSection("\nread backends (--io-backend)", Names(ReadBackends(), &ReadBackendRow::name)) +
         ListSection("\ncompute backends (--backend)", ListedComputeBackends()) +
         ListSection("\nweight formats (of stores: moed-pack)", Names(Formats(), &Format::name)) +
         ListSection("\nmodel families (of stores: moed-pack)", Names(Families(), &Family::model_type));
}

}  // namespace moed
