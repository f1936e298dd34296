// What schemas accept and what they are refused for; texts made by the masks alone are valid.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <random>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "tests/grammar/texts.h"
#include "tests/grammar/validator.h"

namespace moed::grammar {
namespace {

struct Case {
  const char* schema;
  std::vector<std::string> yes, no;
};

const std::vector<Case>& Cases() {
  static const std::vector<Case> kCases = {
      {R"({"type": "object"})",
       {"{}", R"({"a": [1, {"b": null}], "é": "x\n"})", "{\n  \"a\": 1\n}"},
       {"[]", "{", R"({"a"})", "{} "}},
      {"true", {"null", "-0.5e+3", R"("\ud83d\ude42")", "[[], {}]"}, {"", "01", R"("\ud83d")", "nul"}},
      {R"({"type": "string"})", {R"("")", R"("a\"\\\/\u00e9é🙂")"}, {R"("a)", "1", "\"\n\"", R"("\x")"}},
      {R"({"type": "string", "minLength": 2, "maxLength": 3})", {R"("é🙂")", R"("\u0041bc")"}, {R"("a")", R"("abcd")"}},
      {R"({"type": "string", "minLength": 2.0, "maxLength": 3e0})", {R"("é🙂")"}, {R"("a")", R"("abcd")"}},
      {R"({"items": {"type": "null"}, "minItems": 1.0, "maxItems": 2.0})", {"[null]", "[null,null]"}, {"[]", "[null,null,null]"}},
      {R"({"type": "string", "pattern": "^a.c$"})", {R"("abc")", R"("a\"c")"}, {R"("ab")", R"("xabc")"}},
      {R"({"type": "string", "pattern": "b+"})", {R"("b")", R"("abbc")"}, {R"("ac")"}},
      {R"({"format": "date"})",
       {R"("2024-02-29")", R"("2000-02-29")", R"("1999-12-31")", R"("0004-02-29")", R"("0001-01-01")"},
       {R"("2023-02-29")", R"("1900-02-29")", R"("2024-04-31")", R"("2024-13-01")", R"("2024-00-10")", R"("2024-01-00")",
        R"("2024-1-1")", R"("0000-01-01")", R"("2024-02-30")", R"("12024-01-01")", "5"}},
      {R"({"type": "string", "format": "time"})",
       {R"("23:59:59Z")", R"("00:00:00.123456+23:59")", R"("12:30:00-00:00")"},
       {R"("24:00:00Z")", R"("12:60:00Z")", R"("12:00:60Z")", R"("12:00:00")", R"("12:00Z")", R"("12:00:00.Z")",
        R"("12:00:00+24:00")"}},
      {R"({"type": "string", "format": "date-time"})",
       {R"("2024-02-29T12:30:00Z")", R"("1985-04-12T23:20:50.52+01:30")"},
       {R"("2024-02-29")", R"("2023-02-29T12:30:00Z")", R"("2024-02-29 12:30:00Z")", R"("2024-02-29T12:30:00")"}},
      {R"({"type": "string", "format": "duration"})",
       {R"("P3Y6M4DT12H30M5S")", R"("PT0S")", R"("P2W")", R"("P1DT1M")", R"("P1M")", R"("PT1H1M")"},
       {R"("P")", R"("PT")", R"("P1DT")", R"("P1Y2D")", R"("PT1H2S")", R"("P1W2D")", R"("1D")", R"("PT1D")", R"("P1S")"}},
      {R"({"type": "string", "format": "email"})",
       {R"("a.b+c@example.com")", R"("x_1@a-b.c.org")"},
       {R"("a@b")", R"("@example.com")", R"(".a@example.com")", R"("a..b@example.com")", R"("a@-x.com")", R"("a b@example.com")",
        R"("a@x..com")", R"("12345678901234567890123456789012345678901234567890123456789012345@x.de")"}},
      {R"({"type": "string", "format": "hostname"})",
       {R"("localhost")", R"("a-1.Example.com")", R"("1.de")"},
       {R"("")", R"("-a.com")", R"("a-.com")", R"("a_b.com")", R"("a..b")", R"("1.2.3.4")", R"("x.com.")"}},
      {R"({"type": "string", "format": "ipv4"})",
       {R"("0.0.0.0")", R"("255.249.199.99")"},
       {R"("256.1.1.1")", R"("1.1.1")", R"("01.1.1.1")", R"("1.1.1.1.1")"}},
      {R"({"type": "string", "format": "ipv6"})",
       {R"("::")", R"("::1")", R"("fe80::")", R"("1:2:3:4:5:6:7:8")", R"("1::8")", R"("2001:DB8::ff00:42:8329")",
        R"("1:2:3:4:5:6:7::")", R"("::2:3:4:5:6:7:8")", R"("1:2:3:4:5:6::8")"},
       {R"("1:2:3:4:5:6:7")", R"("1::2::3")", R"("1:2:3:4:5:6:7:8::")", R"("::1:2:3:4:5:6:7:8")", R"("12345::")", R"(":1")",
        R"("g::")", R"("1:2:3:4::5:6:7:8")"}},
      {R"({"type": "string", "format": "uuid"})",
       {R"("123e4567-E89B-12d3-a456-426614174000")"},
       {R"("123e4567e89b12d3a456426614174000")", R"("123e4567-e89b-12d3-a456-42661417400")",
        R"("g23e4567-e89b-12d3-a456-426614174000")"}},
      // What schemas' generators write for an identifier, and for an address of mail, whose pattern is not held.
      {R"({"type": "string", "format": "uuid", "pattern": "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"})",
       {R"("123e4567-e89b-12d3-a456-426614174000")"},
       {R"("123E4567-e89b-12d3-a456-426614174000")"}},
      {R"({"format": "date", "minLength": 10, "maxLength": 10})", {R"("2024-01-01")"}, {R"("2024-01-1")", R"("")"}},
      {R"({"format": "email", "maxLength": 254})", {R"("a@b.de")"}, {R"("a")"}},
      {R"({"pattern": "^[a-z]+$", "maxLength": 3})", {R"("a")", R"("abc")"}, {R"("")", R"("abcd")", R"("A")"}},
      {R"({"pattern": "^[A-Z]*$", "minLength": 2})", {R"("AB")", R"("ABCDEFG")"}, {R"("")", R"("A")", R"("ABc")"}},
      {R"({"pattern": "^(?:ab|c{2,3})d?$|^e{1,9}$", "minLength": 2, "maxLength": 4})",
       {R"("ab")", R"("cccd")", R"("eeee")"},
       {R"("e")", R"("eeeee")", R"("abb")"}},
      {R"({"type": "string", "format": "uri"})", {R"("any")"}, {"1"}},
      {R"({"type": "integer", "format": "int32"})", {"7"}, {R"("7")"}},
      {R"({"type": "integer", "nullable": true, "maximum": 5})", {"5", "null"}, {"6", R"("a")"}},
      {R"({"type": "string", "nullable": true, "enum": ["a", null]})", {R"("a")", "null"}, {R"("b")"}},
      {R"({"type": "string", "nullable": true, "enum": ["a"]})", {R"("a")"}, {"null"}},
      {R"({"type": "null", "nullable": false, "allOf": [{"nullable": false}]})", {"null"}, {"1"}},
      {R"({"type": "string", "contentEncoding": "base64", "contentMediaType": "image/png", "contentSchema": {"type": "null"}, "example": "a",
          "x-order": 1, "discriminator": {"propertyName": "k"}, "propertyOrdering": ["a"]})",
       {R"("a")"},
       {"1"}},
      {R"({"allOf": [{"type": "string"}, {"format": "ipv4"}]})", {R"("1.2.3.4")"}, {R"("a")"}},
      {R"({"type": "integer"})",
       {"0", "-17", "9007199254740993", "-999999999999999999"},
       {"1.5", "1234567890123456789", "01", "-", "+1", "1e3"}},
      {R"({"type": "integer", "minimum": -3, "maximum": 120})",
       {"-3", "0", "9", "99", "119", "120"},
       {"-4", "121", "1000", "-10", "00"}},
      {R"({"type": "integer", "exclusiveMinimum": 9, "exclusiveMaximum": 1000})", {"10", "99", "100", "999"}, {"9", "1000", "5"}},
      {R"({"type": "integer", "minimum": 18})", {"18", "19", "20", "99", "100", "12345"}, {"17", "9", "-20"}},
      {R"({"type": "integer", "minimum": -9223372036854775808, "maximum": 9223372036854775807})",
       {"0", "999999999999999999", "-999999999999999999"},
       {"1.5", "1e3"}},
      {R"({"type": "integer", "minimum": 9007199254740993, "maximum": 9007199254740995})",
       {"9007199254740993", "9007199254740995"},
       {"9007199254740992", "9007199254740996"}},
      {R"({"type": "integer", "exclusiveMinimum": -99999999999999999, "maximum": 18446744073709551615})",
       {"-99999999999990000", "999999999999999999"},
       {"-99999999999999999"}},
      {R"({"type": "number", "minimum": -1.7976931348623157e308, "maximum": 9223372036854775807})",
       {"-999999999999999999", "0.25", "999999999999999999.5"},
       {"1e30", "-1e3"}},
      {R"({"type": "number", "minimum": 100000000000000000})",
       {"100000000000000000", "999999999999999999"},
       {"99999999999999999"}},
      {R"({"type": "integer", "maximum": -5})", {"-5", "-10", "-123"}, {"-4", "0", "5"}},
      {R"({"type": "number", "minimum": 0, "maximum": 1})", {"0", "0.5", "1", "1.00", "0.0"}, {"1.01", "-0.1", "2", "1e0"}},
      {R"({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 10})",
       {"0.001", "9.99", "1"},
       {"0", "0.0", "10", "10.0"}},
      {R"({"type": "number", "minimum": -2.0, "exclusiveMaximum": 0})", {"-2", "-0.5", "-2.0", "-1.75"}, {"-2.1", "0", "-3"}},
      {R"({"type": "number", "minimum": 0.5, "maximum": 2.25})",
       {"0.5", "0.50", "0.51", "1", "1.999999999999999", "2.2", "2.25", "2.250"},
       {"0.4", "0.49999", "2.251", "2.3", "3", "-1", "0", "0.", "1.", "01"}},
      {R"({"type": "number", "minimum": -0.25, "exclusiveMaximum": 100.5})",
       {"-0.25", "-0.2", "0", "99.99", "100", "100.49", "100.4999999999"},
       {"-0.26", "-1", "100.5", "100.50", "100.49999999999999", "101", "1000"}},
      {R"({"type": "number", "exclusiveMinimum": -1e-7, "maximum": 3.141592653589793})",
       {"-0.00000009", "0", "3.14159265358979", "3.1", "3"},
       {"-0.0000001", "-0.0000002", "3.1415926535897932", "3.15"}},
      {R"({"type": "integer", "minimum": 0.5, "exclusiveMaximum": 3.5})", {"1", "3"}, {"0", "4", "1.0"}},
      {R"({"type": "number", "exclusiveMaximum": 9007199254740992})", {"9007199254740980", "0.25"}, {"9007199254740991.9"}},
      {R"({"type": "number", "minimum": 0.3, "exclusiveMinimum": 0.3, "maximum": 0.5, "exclusiveMaximum": 0.4})",
       {"0.31", "0.39"},
       {"0.3", "0.4", "0.29", "0.41"}},
      {R"({"type": "integer", "multipleOf": 7})", {"0", "7", "-14", "700", "999999999999999992"}, {"1", "8", "701", "7.0", "07"}},
      {R"({"type": "integer", "multipleOf": 60, "minimum": 100, "maximum": 1000})",
       {"120", "180", "960"},
       {"60", "100", "1020", "130"}},
      {R"({"type": "integer", "multipleOf": 2.5})", {"0", "5", "-15"}, {"2", "7"}},
      {R"({"type": "integer", "multipleOf": 100})", {"100", "0", "12300"}, {"10", "1001"}},
      {R"({"type": "number", "multipleOf": 0.01})",
       {"0", "0.07", "-12.3", "5.10", "9999999999999.99"},
       {"0.001", "1e2", "1.", "99999999999999.99"}},
      {R"({"type": "number", "multipleOf": 0.25, "exclusiveMinimum": 0, "maximum": 10})",
       {"0.25", "0.5", "0.75", "10", "10.0", "9.75"},
       {"0", "0.1", "0.2", "10.25", "0.250"}},
      {R"({"type": "number", "multipleOf": 5})", {"5", "-10", "0"}, {"5.5", "4", "5.0"}},
      {R"({"type": ["boolean", "null"]})", {"true", "false", "null"}, {"0", R"("true")"}},
      {R"({"enum": ["a\"b", 1, null, {"x": [1]}]})", {R"("a\"b")", "1", "null", R"({"x":[1]})"}, {R"("a")", "2"}},
      {R"({"type": "string", "enum": ["a", 1]})", {R"("a")"}, {"1"}},
      {R"({"type": "integer", "enum": [1.0, 2.5, 3]})", {"1.0", "3"}, {"2.5", "2"}},
      {R"({"enum": ["a", "ab", "é", "abc", "a", 7], "minLength": 1, "maxLength": 2})",
       {R"("a")", R"("ab")", R"("é")", "7"},
       {R"("abc")", R"("")"}},
      {R"({"const": "é"})", {R"("é")"}, {R"("e")"}},
      {R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "required": ["b"]})",
       {R"({"a": 1, "b": "x"})", R"({"b":""})"},
       {R"({"a": 1})", R"({"b": "x", "a": 1})", R"({"b": "x",})", R"({"a": 1 , "b": "x"})", R"({"b": "x", "c": 1})"}},
      {R"({"properties": {"a": true, "b": true, "c": true}, "title": "T", "additionalProperties": false})",
       {"{}", R"({"a":1,"c":[]})", R"({"b":{}})"},
       {R"({"c":1,"a":2})", R"({,"a":1})"}},
      {R"({"type": "object", "additionalProperties": {"type": "integer"}})", {"{}", R"({"x": 1, "y": 2})"}, {R"({"x": "1"})"}},
      {R"({"type": "object", "additionalProperties": false})", {"{}", "{ }"}, {R"({"a": 1})"}},
      {R"({"type": "object", "required": ["a"]})", {R"({"a": [1]})"}, {"{}"}},
      {R"({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3})",
       {"[1]", "[1, 2,3]", "[\n\t1\n]"},
       {"[]", "[1,2,3,4]", "[1,]", R"(["a"])"}},
      {R"({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "null"}], "minItems": 2, "maxItems": 2})",
       {"[1, null]", "[-3,null]"},
       {"[1]", "[1, null, 2]", "[null, 1]", "[]"}},
      {R"({"prefixItems": [{"type": "integer"}, {"type": "null"}], "items": {"type": "boolean"}, "minItems": 1, "maxItems": 4})",
       {"[1]", "[1, null]", "[1, null, true, false]"},
       {"[]", "[true]", "[1, true]", "[1, null, 2]", "[1, null, true, true, true]", "[1,]"}},
      {R"({"type": "array", "items": [{"type": "integer"}, {"type": "null"}], "minItems": 2, "maxItems": 2})",
       {"[1, null]"},
       {"[1]", "[1, null, 2]", "[null, 1]"}},
      {R"({"prefixItems": [{"type": "integer"}, {"type": "null"}], "items": false})",
       {"[]", "[ ]", "[1]", "[1, null]"},
       {"[1, null, 1]", "[null]"}},
      {R"({"prefixItems": [{"type": "integer"}, {"type": "null"}], "maxItems": 1})", {"[]", "[1]"}, {"[1, null]"}},
      {R"({"prefixItems": [{"type": "integer"}], "minItems": 3})", {"[1, 2, []]", "[1, 2, 3, 4]"}, {"[1, 2]", "[null, 2, 3]"}},
      {R"({"type": "array", "uniqueItems": true, "maxItems": 1})", {"[]", "[1]"}, {"[1, 1]"}},
      {R"({"type": "array", "uniqueItems": true, "items": {"enum": ["a", "ab", 1]}})",
       {"[]", R"(["a"])", R"(["ab", "a"])", R"(["a","ab"])", R"([1, "ab", "a"])", R"(["a", 1, "ab"])"},
       {R"(["a", "a"])", "[1, 1]", R"(["a", "ab", 1, "a"])", R"(["b"])", R"(["a",])"}},
      {R"({"uniqueItems": true, "items": {"$ref": "#/$defs/x"}, "minItems": 1, "maxItems": 2,
          "$defs": {"x": {"$ref": "#/$defs/y"}, "y": {"enum": [3, 4, 4.0, "z"], "type": "integer", "title": "T"}}})",
       {"[3]", "[4, 3]", "[3, 4]"},
       {"[]", "[3, 4, 3]", "[4, 4]", "[4, 4.0]", R"(["z"])"}},
      {R"({"type": "object", "propertyNames": {"pattern": "^[a-z]{1,3}$"}, "additionalProperties": {"type": "integer"}})",
       {"{}", "{ }", R"({"a": 1, "abc": 2})", "{\n  \"x\": 0\n}"},
       {R"({"A": 1})", R"({"abcd": 1})", R"({"a": "1"})", R"({"": 1})", R"({"a": 1,})"}},
      {R"({"propertyNames": {"enum": ["red", "a\"b", 7]}})", {R"({"red": [], "a\"b": null})"}, {R"({"blue": 1})", R"({7: 1})"}},
      {R"({"propertyNames": {"$ref": "#/$defs/k"}, "additionalProperties": {"type": "null"}, "$defs": {"k": {"const": "é"}}})",
       {R"({"é": null})"},
       {R"({"e": null})", R"({"é": 1})"}},
      {R"({"propertyNames": {"format": "uuid"}, "additionalProperties": true})",
       {R"({"123e4567-e89b-12d3-a456-426614174000": {}})"},
       {R"({"123e4567": 1})"}},
      {R"({"propertyNames": {"minLength": 2, "maxLength": 3}})",
       {R"({"ab": 1, "éé🙂": 2})"},
       {R"({"a": 1})", R"({"abcd": 1})"}},
      {R"({"propertyNames": {"anyOf": [{"const": "x"}, {"pattern": "^y+$"}]}})", {R"({"x": 1, "yy": 2})"}, {R"({"z": 1})"}},
      {R"({"propertyNames": false})", {"{}"}, {R"({"a": 1})"}},
      {R"({"propertyNames": {"pattern": "^a"}, "additionalProperties": false})", {"{}"}, {R"({"a": 1})"}},
      {R"({"allOf": [{"propertyNames": {"minLength": 2}}, {"propertyNames": {"maxLength": 2}, "additionalProperties": {"type": "null"}}]})",
       {R"({"ab": null})"},
       {R"({"a": null})", R"({"abc": null})", R"({"ab": 1})"}},
      {R"({"type": "object", "patternProperties": {"^x-": {"type": "integer"}}})",
       {"{}", R"({"x-": 1, "x-a\"": 2})"},
       {R"({"x-a": "1"})", R"({"y": 1})"}},
      {R"({"patternProperties": {"^a$": {"type": "null"}, "^b+$": {"type": "null"}}, "additionalProperties": false})",
       {R"({"a": null, "bb": null})"},
       {R"({"c": null})", R"({"a": 1})", R"({"ab": null})"}},
      {R"({"allOf": [{"patternProperties": {"b": true}, "additionalProperties": false}, {"type": "object", "additionalProperties": true}]})",
       {R"({"abc": [1]})"},
       {R"({"a": 1})"}},
      {R"({"type": "array", "uniqueItems": false, "items": {"type": "null"}})", {"[null, null]"}, {"[1]"}},
      {R"({"properties": {"a": {"type": "null"}}, "required": ["b"], "additionalProperties": {"type": "integer"}})",
       {R"({"a": null, "b": 1})", R"({"b": 1})"},
       {R"({"a": 1, "b": 1})", R"({"b": null})", R"({"a": null})"}},
      {R"({"allOf": [{"additionalProperties": {"type": "integer"}}, {"properties": {"a": {"minimum": 3}}}]})",
       {R"({"a": 3})", "{}"},
       {R"({"a": 2})", R"({"a": null})"}},
      {R"({"type": "array", "items": false})", {"[]"}, {"[1]"}},
      {R"({"type": "array", "maxItems": 0})", {"[]"}, {"[1]"}},
      {R"({"anyOf": [{"type": "integer"}, {"type": "array", "items": {"$ref": "#"}}]})",
       {"1", "[[1], [], 2]"},
       {"null", R"(["a"])"}},
      {R"({"oneOf": [{"properties": {"k": {"const": "a"}}, "required": ["k"]}, {"properties": {"k": {"const": "b"}}, "required": ["k"]}],
          "type": "object"})",
       {R"({"k": "a"})", R"({"k":"b"})"},
       {"{}", R"({"k": "c"})"}},
      {R"({"allOf": [{"type": "integer", "minimum": 3}, {"type": "number", "maximum": 8, "minimum": 1}]})",
       {"3", "8"},
       {"2", "9", "3.5"}},
      {R"({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": false,
          "allOf": [{"properties": {"b": {"type": "boolean"}}}]})",
       {R"({"a": 0})"},
       {R"({"a": 0, "b": false})", "{}"}},
      {R"({"properties": {"a": {"type": "integer"}}, "anyOf": [{"additionalProperties": false},
          {"properties": {"b": {"type": "boolean"}}, "required": ["b"], "additionalProperties": false},
          {"$ref": "#/$defs/x"}, {"properties": {"a": {"minimum": 5}, "d": true}, "required": ["d"]}],
          "$defs": {"x": {"properties": {"c": {"type": "null"}, "a": true}, "additionalProperties": false}}})",
       {"{}", R"({"a": 1})", R"({"b": true})", R"({"a": 1, "c": null})", R"({"a": 6, "d": 1})"},
       {R"({"a": 1, "b": true})", R"({"a": 0, "d": 1})", R"({"b": true, "c": null})"}},
      {R"({"type": "boolean", "anyOf": [true, {"const": true}]})", {"true", "false"}, {"0", "null"}},
      {R"({"type": "integer", "oneOf": [false, {"minimum": 3}]})", {"3"}, {"2", "null"}},
      {R"({"allOf": [true, {"type": "integer"}, {"$ref": "#/$defs/any"}], "$defs": {"any": true}})", {"3"}, {"null"}},
      {R"({"type": "integer", "$ref": "#/$defs/any", "$defs": {"any": true}})", {"3"}, {"null"}},
      {R"({"anyOf": [{"type": "null"}, {"allOf": [false, {"type": "integer"}]}]})", {"null"}, {"3"}},
      {R"({"allOf": [{"additionalProperties": {"type": "integer"}}, {"additionalProperties": {"minimum": 3, "type": "number"}}]})",
       {"{}", R"({"x": 3, "y": 4})"},
       {R"({"x": 2})", R"({"x": 3.5})"}},
      {R"({"$defs": {"node": {"type": "object", "properties": {"v": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/node"},
          {"type": "null"}]}}, "required": ["v", "next"], "additionalProperties": false}}, "$ref": "#/$defs/node"})",
       {R"({"v": 1, "next": {"v": 2, "next": null}})"},
       {R"({"v": 1})", R"({"v": 1, "next": 2})"}},
      {R"({"definitions": {"a/b": {"type": "integer"}}, "properties": {"x": {"$ref": "#/definitions/a~1b", "description": "d"},
          "y": {"allOf": [{"$ref": "#/definitions/a~1b"}], "minimum": 3, "maximum": 5}}})",
       {R"({"x": 1, "y": 4})"},
       {R"({"x": "1"})", R"({"y": 6})"}},
      {R"({"properties": {"x": {"anyOf": [{"type": "null"}, {"type": "integer"}]}, "y": {"$ref": "#/properties/x/anyOf/1"}}})",
       {R"({"x": null, "y": 4})"},
       {R"({"y": null})"}},
  };
  return kCases;
}

TEST(JsonSchema, AcceptsWhatItSays) {
  for (const Case& one : Cases()) {
    const auto grammar = Grammar::FromJsonSchema(one.schema);
    ASSERT_TRUE(grammar.ok()) << one.schema << ": " << grammar.status();
    const auto schema = nlohmann::ordered_json::parse(one.schema);
    for (const std::string& text : one.yes) {
      EXPECT_TRUE(Follows(*grammar, text)) << one.schema << " | " << text;
      EXPECT_TRUE(IsValid(schema, text)) << one.schema << " | " << text;
    }
    for (const std::string& text : one.no) EXPECT_FALSE(Follows(*grammar, text)) << one.schema << " | " << text;
  }
  const auto any_object = Grammar::FromSyntax(*SyntaxOf({}), DemoTrie());
  ASSERT_TRUE(any_object.ok()) << any_object.status();
  EXPECT_TRUE(Follows(*any_object, R"({"a": {"b": [true]}})"));
  EXPECT_FALSE(Follows(*any_object, "[]"));
}

TEST(JsonSchema, AFormatIsHeldWhereThePatternBesideItCannotBe) {
  const auto grammar = Grammar::FromJsonSchema(R"x({"format": "email", "pattern": "^(?!\\.)[a-z]+@[a-z]+\\.de$"})x");
  ASSERT_TRUE(grammar.ok()) << grammar.status();
  EXPECT_TRUE(Follows(*grammar, R"("a@b.com")"));
  EXPECT_FALSE(Follows(*grammar, R"("a")"));
  EXPECT_EQ(Grammar::FromJsonSchema(R"x({"format": "date", "pattern": "(?=a)", "maxLength": 9})x").status().message(),
            "at /: 'pattern': at byte 0: '(?=' is not supported: no lookaround, flags or names");
}

TEST(JsonSchema, ReferencesMayBeEncodedOrBeginWithTheRootsName) {
  for (const char* reference : {"#/$defs/a%20b", "#/%24defs/a b", "http://x/y#/$defs/a%20b"}) {
    const auto grammar = Grammar::FromJsonSchema(
        StrCat(R"({"$id": "http://x/y", "$defs": {"a b": {"type": "null"}}, "$ref": ")", reference, R"("})"));
    ASSERT_TRUE(grammar.ok()) << grammar.status();
    EXPECT_TRUE(Follows(*grammar, "null"));
    EXPECT_FALSE(Follows(*grammar, "1"));
  }
  const auto whole = Grammar::FromJsonSchema(R"({"$id": "http://x/y#", "type": "array", "items": {"$ref": "http://x/y"}})");
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_TRUE(Follows(*whole, "[[], [[]]]"));
  EXPECT_FALSE(Follows(*whole, "[1]"));
}

TEST(JsonSchema, ThousandsOfValues) {
  nlohmann::ordered_json values;
  std::string choices;
  for (int i = 0; i < 5000; ++i) {
    values.push_back(StrCat("id-", i * 7919 % 100'003));
    choices += StrCat(i == 0 ? "" : "|", values.back().get<std::string>());
  }
  const std::string schema = nlohmann::ordered_json({{"enum", values}}).dump();
  for (const auto& [grammar, quote] :
       {std::pair(Grammar::FromJsonSchema(schema), "\""), std::pair(Grammar::FromRegex(choices), "")}) {
    ASSERT_TRUE(grammar.ok()) << grammar.status();
    for (const auto& value : values) ASSERT_TRUE(Follows(*grammar, StrCat(quote, value.get<std::string>(), quote)));
    EXPECT_FALSE(Follows(*grammar, StrCat(quote, "id-1", quote)));
    Matcher matcher = MatcherOf(*grammar);
    EXPECT_EQ(matcher.Allowed().status(), absl::OkStatus());
  }
}

TEST(JsonSchema, BoundsThatNoTextReachesAreNone) {
  constexpr uint64_t kMostBytes = 1 << 20;
  for (const char* schema :
       {R"({"type": "string", "maxLength": 1048576})", R"({"type": "string", "maxLength": 1e300, "pattern": "^b.*a"})",
        R"({"type": "string", "format": "date", "maxLength": 9223372036854775807})"}) {
    EXPECT_EQ(Grammar::FromJsonSchema(schema, kMostBytes).status(), absl::OkStatus()) << schema;
  }
  const auto items = Grammar::FromJsonSchema(R"({"items": {"type": "null"}, "maxItems": 4294967296})", kMostBytes);
  ASSERT_TRUE(items.ok()) << items.status();
  EXPECT_TRUE(Follows(*items, "[null, null]"));
  EXPECT_EQ(Grammar::FromJsonSchema(R"({"type": "string", "maxLength": 1048575})", kMostBytes).status().message(),
            "at /: 'maxLength' is 1048575, allowed are 0 to 65536, whole");
  EXPECT_FALSE(Grammar::FromJsonSchema(R"({"type": "string", "minLength": 1048576})", kMostBytes).ok());
  EXPECT_FALSE(Grammar::FromJsonSchema(R"({"type": "string", "maxLength": 1048576.5})", kMostBytes).ok());
}

TEST(JsonSchema, PatternsAreOfEcmaScript) {
  const auto grammar = Grammar::FromJsonSchema(R"({"type": "string", "pattern": "^\\S.$"})");
  ASSERT_TRUE(grammar.ok()) << grammar.status();
  for (const char* text : {R"("ab")", R"("éé")"}) EXPECT_TRUE(Follows(*grammar, text)) << text;
  for (const char* text : {R"("a\r")", "\"\u00a0b\"", "\"\ufeffb\"", "\"a\u2028\""})
    EXPECT_FALSE(Follows(*grammar, text)) << text;
}

TEST(JsonSchema, ManyOptionalPropertiesAreFewWaysToGoOn) {
  nlohmann::ordered_json schema = {{"type", "object"}};
  for (int i = 0; i < 700; ++i) schema["properties"]["p" + std::to_string(i)] = true;
  const auto grammar = Grammar::FromJsonSchema(schema.dump());
  ASSERT_TRUE(grammar.ok()) << grammar.status();
  EXPECT_TRUE(Follows(*grammar, R"({"p3": 1, "p699": []})"));
  EXPECT_FALSE(Follows(*grammar, R"({"p699": 1, "p3": 2})"));
  Matcher matcher = MatcherOf(*grammar);
  for (const char byte : std::string_view(R"({"p3": 1, "p6)")) {
    ASSERT_TRUE(matcher.Accept({&byte, 1}).ok());
    EXPECT_EQ(matcher.Allowed().status(), absl::OkStatus());
  }
}

TEST(JsonSchema, RefusalsNamePlaceAndKeyword) {
  const std::pair<const char*, const char*> kRefused[] = {
      {"{", "no JSON"},
      {"3", "at /: a schema is an object or a boolean, not number"},
      {R"({"properties": {"x": {"not": {}}}})", "at /properties/x: the keyword 'not' is not supported"},
      {R"({"multipleOf": 0})",
       "at /: 'multipleOf' is 0, allowed are 1 to 100, whole or of one of 9 places, of which factors 2 and 5 leave 12 at most"},
      {R"({"multipleOf": 13})",
       "at /: 'multipleOf' is 13, allowed are 1 to 100, whole or of one of 9 places, of which factors 2 and 5 leave 12 at most"},
      {R"({"multipleOf": 10.01})",
       "at /: 'multipleOf' is 10.01, allowed are 1 to 100, whole or of one of 9 places, of which factors 2 and 5 leave 12 at "
       "most"},
      {R"({"multipleOf": 0.001, "maximum": 9007199254740992})",
       "at /: 'multipleOf' is 0.001, which has more than 18 digits with the bounds"},
      {R"({"allOf": [{"multipleOf": 2}, {"multipleOf": 3}]})", "at /: two different 'multipleOf' cannot be joined"},
      {R"({"multipleOf": 2, "minimum": 2.5, "maximum": 3.5})", "no text can be what it says"},
      {R"({"items": {"format": 3}})", "at /items: 'format' is 3"},
      {R"({"format": "date", "maxLength": 9})",
       "at /: 'format': beside 'minLength' or 'maxLength' it is supported where each alternative has '^' and '$' and is of such "
       "lengths, or "
       "is one character, repeated"},
      {R"({"nullable": true})", "at /: 'nullable' is supported beside 'type' alone"},
      {R"({"type": "null", "nullable": 1})", "at /: 'nullable' is 1"},
      {R"({"allOf": [{"type": "string"}, {"type": "string", "nullable": true}]})",
       "at /: 'nullable' in schemas to be joined is not supported"},
      {R"({"allOf": [{"format": "date"}, {"format": "time"}]})", "at /: two different 'format' cannot be joined"},
      {R"({"type": "text"})", "at /: no type 'text'; types: object, array, string, number, integer, boolean, null"},
      {R"({"type": [1]})", "at /: 'type' is 1"},
      {R"({"$ref": "#/$defs/x"})", R"(at /: '$ref' is "#/$defs/x", which is nothing in this schema)"},
      {R"({"$ref": "http://x"})", R"(at /: '$ref' is "http://x", which is nothing in this schema)"},
      {R"x({"type": "string", "pattern": "(?=a)"})x",
       "at /: 'pattern': at byte 0: '(?=' is not supported: no lookaround, flags or names"},
      {R"({"type": "string", "pattern": "a", "minLength": 2})",
       "at /: 'pattern': beside 'minLength' or 'maxLength' it is supported where each alternative has '^' and '$' and is of such "
       "lengths, or "
       "is one character, repeated"},
      {R"({"type": "string", "minLength": -1})", "at /: 'minLength' is -1, allowed are 0 to 65536, whole"},
      {R"({"type": "string", "minLength": 1.5})", "at /: 'minLength' is 1.5, allowed are 0 to 65536, whole"},
      {R"({"type": "number", "minimum": "1"})", "at /: 'minimum' is \"1\", allowed are numbers"},
      {R"({"type": "number", "minimum": 1e18})", "at /: 'minimum' is 1e+18, allowed are numbers of 18 digits before the point"},
      {R"({"type": "integer", "maximum": -9223372036854775808})",
       "at /: 'maximum' is -9223372036854775808, allowed are numbers of 18 digits before the point"},
      {R"({"$ref": "#/anyOf/2", "anyOf": [true, true]})", R"(at /: '$ref' is "#/anyOf/2", which is nothing in this schema)"},
      {R"({"$ref": "#/anyOf/01", "anyOf": [true, true]})", R"(at /: '$ref' is "#/anyOf/01", which is nothing in this schema)"},
      {R"({"$ref": "#/%5", "$defs": {}})", R"(at /: '$ref' is "#/%5", which is nothing in this schema)"},
      {R"({"$id": "http://x", "$ref": "http://xy"})", R"(at /: '$ref' is "http://xy", which is nothing in this schema)"},
      {R"({"items": [true], "prefixItems": [true]})", "at /: 'items' beside 'prefixItems' are a list"},
      {R"({"uniqueItems": true, "maxItems": 2})",
       "at /: 'uniqueItems' is supported beside a 'maxItems' of 0 or 1, and where 'items' have an 'enum' of at most 8 values; "
       "leave "
       "it out and drop what is there twice"},
      {R"({"uniqueItems": true, "items": {"enum": [1, 2, 3, 4, 5, 6, 7, 8, 9]}})",
       "at /: 'uniqueItems' is supported beside a 'maxItems' of 0 or 1, and where 'items' have an 'enum' of at most 8 values; "
       "leave "
       "it out and drop what is there twice"},
      {R"({"uniqueItems": true, "items": {"enum": [1]}, "minItems": 2})", "no text can be what it says"},
      {R"({"uniqueItems": true, "items": {"enum": [1, 2]}, "prefixItems": [true]})",
       "at /: 'uniqueItems' is supported beside a 'maxItems' of 0 or 1, and where 'items' have an 'enum' of at most 8 values; "
       "leave "
       "it out and drop what is there twice"},
      {R"({"propertyNames": 3})", "at /propertyNames: two schemas that cannot be joined"},
      {R"({"propertyNames": {"not": {}}})", "at /propertyNames: the keyword 'not' is not supported"},
      {R"({"propertyNames": {"pattern": "^a"}, "properties": {"a": true}})",
       "at /: 'propertyNames' beside 'properties' or 'required' is not supported"},
      {R"({"patternProperties": {"^a": true}, "required": ["a"]})",
       "at /: 'patternProperties' beside 'properties' or 'required' is not supported"},
      {R"({"patternProperties": []})", "at /: 'patternProperties' is no object that says something"},
      {R"({"patternProperties": {"^a": true}, "additionalProperties": {"type": "null"}})",
       "at /: 'patternProperties' is supported beside an 'additionalProperties' of true or false alone"},
      {R"({"patternProperties": {"^a": true, "b$": {"type": "null"}}})",
       "at /patternProperties/b$: several patterns are supported where all say the same of values"},
      {R"x({"patternProperties": {"(?=a)": true}})x",
       "at /patternProperties/(?=a): 'pattern': at byte 0: '(?=' is not supported: no lookaround, flags or names"},
      {R"({"allOf": [{"patternProperties": {"^a": true}}, {"additionalProperties": false}]})",
       "at /: 'additionalProperties' and 'patternProperties' of two schemas cannot be joined"},
      {R"({"allOf": [{"patternProperties": {"^a": true}}, {"patternProperties": {"^b": true}}]})",
       "at /: two different 'patternProperties' cannot be joined"},
      {R"({"prefixItems": []})", "at /: 'prefixItems' is no list of schemas"},
      {R"({"prefixItems": [true, 3]})", "at /prefixItems/1: a schema is an object or a boolean, not number"},
      {R"({"allOf": [{"prefixItems": [true]}, {"items": {"type": "null"}}]})",
       "at /: 'items' and 'prefixItems' of two schemas cannot be joined"},
      {R"({"prefixItems": [true], "items": false, "minItems": 2})", "no text can be what it says"},
      {R"({"enum": [1], "minimum": 3})",
       "at /: 'const' and 'enum' are supported beside 'type', 'minLength' and 'maxLength' alone"},
      {R"({"allOf": [{"pattern": "a"}, {"pattern": "b"}]})", "at /: two different 'pattern' cannot be joined"},
      {R"({"additionalProperties": false, "allOf": [{"properties": {"a": true}, "required": ["a"]}]})",
       "no text can be what it says"},
      {R"({"allOf": [{"type": "null"}, 3]})", "at /: two schemas that cannot be joined"},
      {R"({"allOf": [{"$ref": "#/x"}]})", R"(at /: '$ref' is "#/x", which is nothing in this schema)"},
      {R"({"type": "null", "anyOf": [3]})", "at /anyOf/0: two schemas that cannot be joined"},
      {R"({"anyOf": []})", "at /: 'anyOf' is no list of schemas"},
      {R"({"type": "array", "minItems": 2, "maxItems": 1})", "no text can be what it says"},
      {R"({"properties": {"a": {"$ref": "#"}}, "required": ["a"]})", "no text can be what it says"},
      {R"({"$ref": "#"})", "no text can be what it says"},
      {R"({"$ref": "#/$defs/a", "$defs": {"a": {"$id": "b", "const": 1}}})",
       "at /: '$ref' in a schema that has an '$id' below its top is not supported"},
      {R"({"type": "string", "minLength": 65536})", "its automaton has more than 65536 instructions"},
  };
  for (const auto& [schema, words] : kRefused) {
    const auto grammar = Grammar::FromJsonSchema(schema);
    EXPECT_EQ(grammar.status().code(), absl::StatusCode::kInvalidArgument) << schema;
    EXPECT_EQ(grammar.status().message(), words) << schema;
  }
  std::string joined = "true";
  for (int i = 0; i < 12; ++i) joined = StrCat(R"({"minimum": 1, "anyOf": [)", joined, "]}");
  EXPECT_THAT(std::string(Grammar::FromJsonSchema(joined).status().message()),
              testing::HasSubstr("to be joined more than 8 deep"));
  std::string deep;
  for (int i = 0; i < 10'000; ++i) deep += R"({"items":)";
  EXPECT_FALSE(Grammar::FromJsonSchema(deep).ok());
  EXPECT_FALSE(Grammar::FromJsonSchema(std::string(100'000, ' ')).ok());
}

TEST(JsonSchema, KeywordsThatAreNotHeldAreRefusedByName) {
  for (const char* keyword :
       {"not", "if", "then", "else", "contains", "minContains", "maxContains", "minProperties", "maxProperties",
        "dependentRequired", "dependentSchemas", "unevaluatedItems", "unevaluatedProperties", "$anchor", "$dynamicRef",
        "$dynamicAnchor", "$vocabulary", "dependencies", "additionalItems"}) {
    const auto grammar = Grammar::FromJsonSchema(StrCat(R"({"type": "object", ")", keyword, R"(": {}})"));
    EXPECT_EQ(grammar.status().message(), StrCat("at /: the keyword '", keyword, "' is not supported"));
  }
}

std::string Times(int times, const std::string& part) {
  std::string list = part;
  for (int i = 1; i < times; ++i) list += "," + part;
  return list;
}

// Each copied values for minutes.
TEST(JsonSchema, JoiningHasAnEnd) {
  std::string required, names;
  for (int i = 0; i < 1400; ++i) required += StrCat(i == 0 ? "" : ",", R"({"required":["a)", i, R"("]})");
  for (int i = 0; i < 2000; ++i) names += StrCat(i == 0 ? "" : ",", "\"b", i, "\"");
  const std::string kSchemas[] = {
      StrCat(R"({"type":"string","$defs":{"x":{"type":"string","allOf":[)", required, R"(]}},"anyOf":[)",
             Times(1350, R"({"$ref":"#/$defs/x"})"), "]}"),
      StrCat(R"({"type":"null","enum":[)", names, R"(],"anyOf":[)", Times(4000, "{}"), "]}"),
  };
  for (const std::string& schema : kSchemas) {
    const auto grammar = Grammar::FromJsonSchema(schema);
    EXPECT_THAT(std::string(grammar.status().message()),
                testing::HasSubstr("to read and join the schemas takes more than 1048576 steps"));
  }
}

// Each of these would have far more instructions than an automaton may, were what is the same compiled wherever it is wanted.
TEST(JsonSchema, WhatIsWantedOftenIsCompiledOnce) {
  std::string values, names, spellings;
  for (int i = 0; i < 1000; ++i) absl::StrAppend(&values, i > 0 ? "," : "", 1000 + i);
  for (int i = 0; i < 1000; ++i) absl::StrAppend(&names, i > 0 ? "," : "", "\"n", i, "\"");
  const std::string name = "x-value";
  for (size_t i = 0; i < size_t{1} << name.size(); ++i) {
    absl::StrAppend(&spellings, i > 0 ? "," : "", R"({"$ref":"#/)");
    for (size_t at = 0; at < name.size(); ++at) {
      i >> at & 1 ? absl::StrAppend(&spellings, "%", absl::Hex(name[at])) : absl::StrAppend(&spellings, name.substr(at, 1));
    }
    spellings += "\"}";
  }
  const auto map = Grammar::FromJsonSchema(
      StrCat(R"({"type":"object","additionalProperties":{"enum":[)", values, R"(]},"required":[)", names, "]}"));
  EXPECT_TRUE(map.ok()) << map.status();
  const auto spelt = Grammar::FromJsonSchema(StrCat(R"({"anyOf":[)", spellings, R"(],"x-value":{"enum":[)", values, "]}}"));
  ASSERT_TRUE(spelt.ok()) << spelt.status();
  EXPECT_TRUE(Follows(*spelt, "1999"));
}

// Each array in each other is referred to, and is compiled with all that is in it.
TEST(JsonSchema, ReadingWhatIsInManyPlacesIsBounded) {
  const std::string kLong[] = {StrCat(R"({"enum":[)", Times(20'000, "1"), "]}"),
                               StrCat(R"({"pattern":"^[)", std::string(20'000, 'a'), R"(]$"})")};
  for (const std::string& value : kLong) {
    std::string references, arrays = value, path;
    for (int i = 0; i < 56; ++i, path += "/items") {
      arrays = StrCat(R"({"items":)", arrays, "}");
      absl::StrAppend(&references, i > 0 ? "," : "", R"({"$ref":"#/x-arrays)", path, "\"}");
    }
    const auto grammar = Grammar::FromJsonSchema(StrCat(R"({"anyOf":[)", references, R"(],"x-arrays":)", arrays, "}"));
    EXPECT_THAT(std::string(grammar.status().message()), testing::HasSubstr("takes more than 1048576 steps"));
    const auto once = Grammar::FromJsonSchema(StrCat(R"({"anyOf":[{"$ref":"#/x-arrays"}],"x-arrays":)", arrays, "}"));
    EXPECT_TRUE(once.ok()) << once.status();
  }
}

TEST(JsonSchema, AnnotationsAreNotJoined) {
  const auto grammar = Grammar::FromJsonSchema(
      StrCat(R"({"type":"null","default":[)", Times(8000, "[0]"), R"(],"anyOf":[)", Times(300, "{}"), "]}"));
  ASSERT_TRUE(grammar.ok()) << grammar.status();
  EXPECT_TRUE(Follows(*grammar, "null"));
}

// A text of tokens that the masks allow; it ends when it may, with a chance that grows.
std::string Walked(Matcher& matcher, std::mt19937& random) {
  std::string text;
  for (int length = 0; length < 400; ++length) {
    if (matcher.MayEnd() && random() % 100 < 20) return text;
    const auto allowed = matcher.Allowed();
    EXPECT_TRUE(allowed.ok()) << allowed.status() << " after " << text;
    if (!allowed.ok()) return text;
    std::vector<int32_t> tokens;
    for (size_t word = 0; word < allowed->size(); ++word) {
      for (uint64_t bits = (*allowed)[word]; bits != 0; bits &= bits - 1) tokens.push_back(word * 64 + std::countr_zero(bits));
    }
    if (tokens.empty()) return text;
    // What ends things is likelier than among all tokens, so that texts do end.
    std::string bytes = DemoTokenizer().TokenBytes(TokenId(tokens[random() % tokens.size()]));
    for (const std::string_view end : {"]", "}", "\""}) {
      Matcher ahead = matcher;
      if (random() % 3 == 0 && ahead.Accept(end).ok()) bytes = end;
    }
    EXPECT_TRUE(matcher.Accept(bytes).ok()) << text << " | " << bytes;
    text += bytes;
  }
  return "";
}

TEST(JsonSchema, WhateverTheMasksAllowEndsValid) {
  std::mt19937 random(11);
  int whole = 0;
  for (const Case& one : Cases()) {
    const auto schema = nlohmann::ordered_json::parse(one.schema);
    const auto grammar = Grammar::FromJsonSchema(one.schema);
    for (int round = 0; round < 8; ++round) {
      Matcher matcher = MatcherOf(*grammar);
      const std::string text = Walked(matcher, random);
      if (text.empty()) continue;  // it went on too long
      ++whole;
      EXPECT_TRUE(IsValid(schema, text)) << one.schema << " | " << text;
    }
  }
  EXPECT_GT(whole, 100);
}

TEST(JsonSchema, TokensOfValidTextsAreAllowed) {
  for (const Case& one : Cases()) {
    const auto grammar = Grammar::FromJsonSchema(one.schema);
    for (const std::string& text : one.yes) {
      Matcher matcher = MatcherOf(*grammar);
      const auto tokens = DemoTokenizer().Encode(text, {.add_special_tokens = false, .parse_special_tokens = false});
      ASSERT_TRUE(tokens.ok());
      for (const TokenId token : *tokens) {
        const auto allowed = matcher.Allowed();
        ASSERT_TRUE(allowed.ok()) << allowed.status();
        EXPECT_TRUE((*allowed)[token.value() / 64] >> (token.value() % 64) & 1)
            << one.schema << " | " << text << " | " << token.value();
        ASSERT_TRUE(matcher.Accept(DemoTokenizer().TokenBytes(token)).ok());
      }
      EXPECT_TRUE(matcher.MayEnd()) << one.schema << " | " << text;
    }
  }
}

}  // namespace
}  // namespace moed::grammar
