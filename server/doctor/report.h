// What the checks found, as text and as JSON (docs/doctor.md).
#pragma once

#include <string>
#include <vector>

#include "server/doctor/check.h"

namespace moed {

struct CheckedRow {
  const Check* check = nullptr;
  Finding finding;
};

bool CanServe(const std::vector<CheckedRow>& rows);
std::string RowText(const CheckedRow& row);  // with its newlines
std::string VerdictText(const std::vector<CheckedRow>& rows);
std::string DoctorJson(const std::vector<CheckedRow>& rows, const std::string& path);  // one object, indented, with a newline

}  // namespace moed
