#include "tests/pack/command.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>
#include <sstream>

#include "core/base/byte_size.h"
#include "core/model/family.h"
#include "core/quant/encoding.h"
#include "core/store/file_write.h"
#include "core/store/store.h"
#include "core/tokenizer/tokenizer.h"
#include "tests/pack/tiny_checkpoint.h"
#include "tools/pack/checkpoint.h"
#include "tools/pack/plan.h"

namespace moed {
namespace command_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<float> SourceFloats(const SourceTensor& tensor) {
  std::vector<std::byte> raw(tensor.bytes);
  EXPECT_TRUE(tensor.file->ReadAt(tensor.offset, raw).ok());
  std::vector<float> numbers(tensor.bytes / tensor.type->block_bytes);
  tensor.type->decode_row(raw.data(), static_cast<int>(numbers.size()), numbers.data());
  return numbers;
}

std::vector<float> Unpacked(FormatId format, const std::byte* packed, int rows, int cols) {
  std::vector<float> numbers(static_cast<size_t>(rows) * cols);
  for (int row = 0; row < rows; ++row) DecodeRow(format, packed, cols, row, numbers.data() + static_cast<size_t>(row) * cols);
  return numbers;
}

std::vector<float> Meant(const TrunkTensor& tensor, std::vector<float> numbers) {
  const HeadFactor& factor = tensor.head_factor;
  for (size_t i = 0; i < numbers.size(); ++i) {
    float& number = numbers[i];
    if (tensor.spelling == Spelling::kLessOne) number += 1;
    if (tensor.spelling == Spelling::kLogOfNegative) number = -static_cast<float>(std::exp(double{number}));
    const bool scaled = factor.head_dim > 0 && static_cast<int>(i) % factor.head_dim < factor.dims;
    if (scaled) number = static_cast<float>(number * factor.factor);
  }
  return numbers;
}

// From bf16 numbers, a bf16 store holds exactly these numbers under the right names.
TEST(PackCommandTest, EveryFamilyArrivesExactly) {
  for (const Family& family : Families()) {
    TemporaryFolder folder;
    MakeTinyCheckpoint(family.model_type).Write(folder / "in");
    const std::string out = folder / "out.store";
    const CommandResult packed = RunPack({folder / "in", out, "--expert-formats", "bf16,f32,q8", "--trunk-format", "bf16"});
    ASSERT_EQ(packed.exit_code, 0) << packed.err;
    EXPECT_THAT(packed.err, HasSubstr("packing"));

    auto store = StoreReader::Open(out);
    ASSERT_TRUE(store.ok()) << store.status();
    auto checkpoint = Checkpoint::Open(folder / "in");
    ASSERT_TRUE(checkpoint.ok());
    const StoreDescription& description = (*store)->description();
    auto spec = SpecFromJson(description.model_spec);
    ASSERT_TRUE(spec.ok());
    EXPECT_EQ(SpecToJson(*spec), description.model_spec);
    EXPECT_TRUE(Tokenizer::FromBlob(description.tokenizer).ok());

    std::vector<std::byte> trunk(description.trunk_bytes);
    const auto place = [&](uint64_t offset) { return std::span(trunk).subspan(offset); };
    const auto take = [](uint64_t, std::span<const std::byte>) { return absl::OkStatus(); };
    ASSERT_TRUE((*store)->ReadTrunk(nullptr, place, take).ok());
    for (const TrunkTensor& tensor : family.trunk_tensors(*spec)) {
      auto found = (*store)->FindTensor(tensor.store_name);
      ASSERT_TRUE(found.ok()) << found.status();
      const std::byte* bytes = trunk.data() + (*found)->offset;
      const std::vector<float> expected = Meant(tensor, SourceFloats(*checkpoint->Find(tensor.checkpoint_name)));
      if ((*found)->vector) {
        EXPECT_EQ(std::memcmp(bytes, expected.data(), expected.size() * sizeof(float)), 0) << tensor.store_name;
      } else {
        EXPECT_EQ(Unpacked((*found)->format, bytes, tensor.rows, tensor.cols), expected) << tensor.store_name;
      }
    }
    const std::string file = FileContents(out);
    for (const LayerId layer : description.moe_layers) {
      for (int expert = 0; expert < description.experts_per_layer; ++expert) {
        for (const Precision precision : {Precision{0}, Precision{1}}) {
          const uint64_t record = (*store)->RecordOffset({layer, expert, precision});
          for (const ExpertSegment& segment : description.precisions[precision].layers[0].segments) {
            const auto* bytes = reinterpret_cast<const std::byte*>(file.data() + record + segment.offset);
            EXPECT_EQ(Unpacked(segment.format, bytes, segment.rows, segment.cols),
                      SourceFloats(*checkpoint->Find(family.expert_tensor(layer, expert, segment.part))));
          }
        }
      }
    }
    EXPECT_EQ(RunPack({"verify", out}).exit_code, 0);
  }
}

TEST(PackCommandTest, SameInputsSameBytesWhateverTheThreads) {
  TemporaryFolder folder;
  MakeTinyCheckpoint("qwen3_moe").WriteSharded(folder / "in", 2);
  std::string first;
  for (const std::string threads : {"1", "2", "3"}) {
    const std::string out = folder / ("out" + threads);
    ASSERT_EQ(RunPack({folder / "in", out, "--expert-formats", "q8,q4,q2", "--threads", threads}).exit_code, 0);
    if (first.empty()) first = FileContents(out);
    EXPECT_TRUE(FileContents(out) == first) << threads << " threads";
  }
}

// Each precision, and the trunk, by its own quantizer; another quantizer is another pack, not one to resume.
TEST(PackCommandTest, EveryEncodingIsWhatItsQuantizerMakes) {
  TemporaryFolder folder;
  MakeTinyCheckpoint("olmoe").Write(folder / "in");
  const std::string out = folder / "out.store";
  ASSERT_EQ(RunPack({folder / "in", out, "--expert-formats", "q8,q4:channel,q2:hqq,q3", "--trunk-format", "q4a:hqq"}).exit_code,
            0);
  auto store = StoreReader::Open(out);
  ASSERT_TRUE(store.ok());
  auto checkpoint = Checkpoint::Open(folder / "in");
  ASSERT_TRUE(checkpoint.ok());
  const StoreDescription& description = (*store)->description();
  const Family& family = checkpoint->family();
  const std::string file = FileContents(out);
  const auto packed = [](const Encoding& encoding, const SourceTensor& source) {
    const int rows = static_cast<int>(source.shape[0]), cols = static_cast<int>(source.shape[1]);
    std::vector<std::byte> bytes(PackedBytes(encoding.format, rows, cols));
    EXPECT_TRUE(EncodeRows(encoding, SourceFloats(source).data(), rows, cols, bytes).ok());
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  const Encoding encodings[] = {
      {FormatId::kQ8}, {FormatId::kQ4, QuantizerId::kChannel}, {FormatId::kQ2, QuantizerId::kHqq}, {FormatId::kQ3}};
  for (size_t p = 0; p < std::size(encodings); ++p) {
    const LayerId layer = description.moe_layers[1];
    const uint64_t record = (*store)->RecordOffset({layer, 3, static_cast<Precision>(p)});
    for (const ExpertSegment& segment : description.precisions[p].layers[1].segments) {
      const SourceTensor& source = *checkpoint->Find(family.expert_tensor(layer, 3, segment.part));
      EXPECT_TRUE(file.substr(record + segment.offset, segment.bytes) == packed(encodings[p], source))
          << EncodingName(encodings[p]);
    }
  }
  auto embed = (*store)->FindTensor("embed");
  ASSERT_TRUE(embed.ok());
  EXPECT_TRUE(file.substr((*store)->layout().trunk_offset() + (*embed)->offset, (*embed)->bytes) ==
              packed({FormatId::kQ4A, QuantizerId::kHqq}, *checkpoint->Find("model.embed_tokens.weight")));

  auto plan = [&](QuantizerId quantizer) {
    return MakePlan(*checkpoint, {{Encoding{FormatId::kQ2, quantizer}}, Encoding{FormatId::kQ8}})->identity;
  };
  EXPECT_NE(plan(QuantizerId::kRtn), plan(QuantizerId::kHqq));
}

// What config.json says of quantisation is no part of the spec, and decides what weights mean.
TEST(PackCommandTest, AnotherConfigIsAnotherPack) {
  TemporaryFolder folder;
  TinyCheckpoint tiny = MakeTinyCheckpoint("olmoe");
  const auto identity = [&] {
    WriteContents(folder / "in/config.json", tiny.config.dump());
    const auto checkpoint = Checkpoint::Open(folder / "in");
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
    return MakePlan(*checkpoint, {{Encoding{FormatId::kQ8}}, Encoding{FormatId::kQ8}})->identity;
  };
  tiny.Write(folder / "in");
  const uint64_t before = identity();
  EXPECT_EQ(identity(), before);
  tiny.config["transformers_version"] = "5.0.0";  // which changes nothing in the spec
  EXPECT_NE(identity(), before);
}

TEST(PackCommandTest, DryRunSaysTheExactSizeAndWritesNothing) {
  const std::string formats = "q8,q4";
  TemporaryFolder folder;
  const std::string out = folder / "out.store";
  const CommandResult dry = RunPack({DemoCheckpoint(), out, "--expert-formats", formats, "--dry-run"});
  ASSERT_EQ(dry.exit_code, 0) << dry.err;
  EXPECT_THAT(dry.out, AllOf(HasSubstr("experts q8"), HasSubstr("experts q4"), HasSubstr("about ")));
  EXPECT_FALSE(std::filesystem::exists(out));
  EXPECT_FALSE(std::filesystem::exists(out + ".partial"));
  const CommandResult packed = RunPack({DemoCheckpoint(), out, "--expert-formats", formats});
  ASSERT_EQ(packed.exit_code, 0);
  const size_t budgets = packed.out.find("moed --memory-budget");
  ASSERT_NE(budgets, std::string::npos);
  EXPECT_THAT(packed.out.substr(budgets), AllOf(HasSubstr("smallest "), HasSubstr("comfortable ")));
  EXPECT_THAT(dry.out, HasSubstr(packed.out.substr(budgets)));
  // The rows add up to the last one, which is the file.
  std::istringstream lines(dry.out.substr(dry.out.find("\n\n") + 2));
  uint64_t sum = 0, file = 0;
  for (std::string line; std::getline(lines, line) && !line.empty();) {
    std::string digits = line.substr(0, line.find(" bytes")).substr(14);
    std::erase_if(digits, [](char c) { return c < '0' || c > '9'; });
    (line.starts_with("file") ? file : sum) += std::stoull(digits);
  }
  EXPECT_EQ(file, std::filesystem::file_size(out));
  EXPECT_EQ(sum, file);
  const StoreDescription description = StoreReader::Open(out).value()->description();
  const uint64_t whole = description.trunk_bytes + AllRecordBytes(description, kReferencePrecision);
  EXPECT_THAT(dry.out, HasSubstr("memory: " + FormatBytes(whole) + " hold the trunk and every expert"));
}

TEST(PackCommandTest, InspectAgreesWithTheStore) {
  TemporaryFolder folder;
  MakeTinyCheckpoint("olmoe").Write(folder / "in");
  const std::string out = folder / "out.store";
  ASSERT_EQ(RunPack({"--expert-formats", "q8,q4", folder / "in", out}).exit_code, 0);
  const CommandResult text = RunPack({"inspect", out});
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_THAT(text.out, AllOf(HasSubstr("\"family\": \"olmoe\""), HasSubstr("layers.2.router"), HasSubstr("experts q4")));
  const auto json = nlohmann::json::parse(RunPack({"inspect", out, "--json"}).out, nullptr, false);
  ASSERT_FALSE(json.is_discarded());
  EXPECT_EQ(json["file_bytes"], std::filesystem::file_size(out));
  EXPECT_EQ(json["precisions"].size(), 2u);
  EXPECT_EQ(json["precisions"][1]["format"], "q4");
  EXPECT_EQ(json["model_spec"]["family"], "olmoe");
  EXPECT_EQ(json["moe_layers"], nlohmann::json({0, 1, 2}));
}

TEST(PackCommandTest, ADryRunSaysAsJsonWhatInspectSaysAfterwards) {
  TemporaryFolder folder;
  MakeTinyCheckpoint("olmoe").Write(folder / "in");
  const std::string out = folder / "out.store";
  const auto before = nlohmann::json::parse(RunPack({folder / "in", out, "--dry-run", "--json"}).out, nullptr, false);
  ASSERT_FALSE(before.is_discarded());
  EXPECT_FALSE(std::filesystem::exists(out));
  ASSERT_EQ(RunPack({folder / "in", out}).exit_code, 0);
  const auto after = nlohmann::json::parse(RunPack({"inspect", out, "--json"}).out, nullptr, false);
  for (const auto& [name, value] : after.items()) {
    if (name == "path" || name == "model_hash") continue;
    EXPECT_EQ(before[name], value) << name;
  }
  EXPECT_LT(before["smallest_memory_budget_bytes"], before["comfortable_memory_budget_bytes"]);
}

TEST(PackCommandTest, VerifyNamesTheDamage) {
  TemporaryFolder folder;
  MakeTinyCheckpoint("mixtral").Write(folder / "in");
  const std::string out = folder / "out.store";
  ASSERT_EQ(RunPack({folder / "in", out}).exit_code, 0);
  auto store = StoreReader::Open(out);
  ASSERT_TRUE(store.ok());
  const uint64_t at = (*store)->RecordOffset({LayerId(2), 4, 0});
  std::string bytes = FileContents(out);
  bytes[at + 3] ^= 16;
  WriteContents(out, bytes);
  const CommandResult verified = RunPack({"verify", out});
  EXPECT_EQ(verified.exit_code, 1);
  EXPECT_THAT(verified.err, HasSubstr("expert 4 of layer 2 at precision 0 (q8), gate is damaged"));
  EXPECT_EQ(RunPack({"verify", folder / "none"}).exit_code, 1);
}

TEST(PackCommandTest, ReplacesAStoreOnlyWhenTold) {
  TemporaryFolder folder;
  MakeTinyCheckpoint("mixtral").Write(folder / "in");
  const std::string out = folder / "out.store";
  WriteContents(out, "precious");
  const CommandResult refused = RunPack({folder / "in", out});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, HasSubstr("--force"));
  EXPECT_EQ(FileContents(out), "precious");
  EXPECT_EQ(RunPack({folder / "in", out, "--force"}).exit_code, 0);
  EXPECT_EQ(RunPack({"verify", out}).exit_code, 0);
  EXPECT_THAT(RunPack({folder / "in", folder / "in", "--force"}).err, HasSubstr("is a folder"));
}

TEST(PackCommandTest, WrongCommandLinesSayWhatIsAllowed) {
  const struct {
    std::vector<std::string> arguments;
    std::string expected;
  } cases[] = {
      {{}, "IN and OUT"},
      {{"a"}, "IN and OUT"},
      {{"a", "b", "c"}, "c"},
      {{"a", "b", "--speed"},
       "--expert-formats, --trunk-format, --coded, --calibration, --chat-template, --threads, --sync-mib, --dry-run, --force"},
      {{"a", "b", "--expert-formats", "q8,q5"}, "'q5'; known: f32, f16, bf16, q8, q4, q2"},
      {{"a", "b", "--expert-formats", "q8,q2:awq"}, "'awq' in 'q2:awq'; known: rtn, hqq, channel, gptq"},
      {{"a", "b", "--trunk-format", "q8:hqq"}, "'hqq' does not make q8; it makes: q2, q4a, q3"},
      {{"a", "b", "--trunk-format", "int8"}, "'int8'; known: f32"},
      {{"a", "b", "--threads", "0"}, "--threads"},
      {{"a", "b", "--coded=0"}, "--coded: Value 0 not in range 1 to 99"},
      {{"a", "b", "--coded=much"}, "--coded"},
      {{"a", "b", "--json"}, "--list-families or --dry-run"},
      {{"verify"}, "STORE"},
      {{"inspect", "a", "--yaml"}, "allowed: --help, --json"},
  };
  for (const auto& [arguments, expected] : cases) {
    const CommandResult result = RunPack(arguments);
    EXPECT_EQ(result.exit_code, 2) << expected;
    EXPECT_THAT(result.err, HasSubstr(expected));
  }
  EXPECT_THAT(RunPack({"a", "b", "--expert-formats", "q8,q8"}).err, HasSubstr("names q8 twice"));
  EXPECT_THAT(RunPack({"a", "b", "--expert-formats", "q8,q2,q2:hqq"}).err, HasSubstr("names q2 twice"));
  EXPECT_THAT(RunPack({"--help"}).out,
              AllOf(HasSubstr("hqq: half-quadratic"), HasSubstr("moed-pack IN OUT"), HasSubstr("Example"), HasSubstr("verify"),
                    HasSubstr("--coded or --coded=N (default: 8)")));
  EXPECT_THAT(RunPack({"--version"}).out, HasSubstr("moed-pack "));
}

TEST(PackCommandTest, FilesOfAnotherKindAreCalledWhatTheyAre) {
  TemporaryFolder folder;
  MakeTinyCheckpoint("mixtral").Write(folder / "in");
  const std::string out = folder / "out.store", text = folder / "text";
  ASSERT_EQ(RunPack({folder / "in", out}).exit_code, 0);
  const CommandResult store = RunPack({out, folder / "again.store"});
  EXPECT_EQ(store.exit_code, 1);
  EXPECT_THAT(store.err, AllOf(HasSubstr("is a store already"), HasSubstr("moed --store"), HasSubstr("inspect")));
  WriteContents(text, "Once upon a time");
  const CommandResult calibration =
      RunPack({folder / "in", folder / "again.store", "--expert-formats", "q2s:gptq", "--calibration", text});
  EXPECT_EQ(calibration.exit_code, 1);
  EXPECT_THAT(calibration.err, AllOf(HasSubstr("--calibration wants what moed-plan moments STORE TEXT makes"), HasSubstr(text)));
}

TEST(PackCommandTest, NamesOfATemplateThatNobodyKnowsAreTold) {
  TemporaryFolder folder;
  MakeTinyCheckpoint("mixtral").Write(folder / "in");
  WriteContents(folder / "known", "{{ messages[0].content|trim }}");
  WriteContents(folder / "unknown", "{% if x %}\n{{ x|from_json }}{% endif %}");
  const auto told = [&](const std::string& file) {
    const CommandResult result = RunPack({folder / "in", folder / "out.store", "--force", "--chat-template", folder / file});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.err;
  };
  EXPECT_THAT(told("known"), Not(HasSubstr("template")));
  EXPECT_THAT(told("unknown"), HasSubstr("the chat template fails where it gets to line 2: No filter named 'from_json'\n"));
}

TEST(PackCommandTest, AWeightThatIsNoNumberEndsThePack) {
  TemporaryFolder folder;
  TinyCheckpoint tiny = MakeTinyCheckpoint("mixtral");
  const std::string name = "model.layers.1.block_sparse_moe.experts.3.w3.weight";
  const uint16_t nan = 0x7fc0;
  std::memcpy(tiny.tensors[name].bytes.data() + (9 * 40 + 2) * 2, &nan, 2);
  tiny.Write(folder / "in");
  const CommandResult result = RunPack({folder / "in", folder / "out.store"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("model.safetensors"), HasSubstr(name), HasSubstr("row 9, column 2"), Not(HasSubstr("again"))));
  for (const std::string left : {"out.store", "out.store.partial", "out.store.partial.journal"}) {
    EXPECT_FALSE(std::filesystem::exists(folder / left)) << left;
  }
}

TEST(PackCommandTest, WhatCannotBeThrownAwayHidesNoReason) {
  TemporaryFolder folder;
  TinyCheckpoint tiny = MakeTinyCheckpoint("mixtral");
  const uint16_t nan = 0x7fc0;
  std::memcpy(tiny.tensors["model.layers.1.block_sparse_moe.experts.3.w3.weight"].bytes.data(), &nan, 2);
  tiny.Write(folder / "in");
  const std::string partial = folder / "out.store.partial";
  WriteContents(partial, "");
  // What something is mounted on cannot be removed.
  Command command("moed-pack", {folder / "in", folder / "out.store"}, [&] {
    return unshare(CLONE_NEWNS) == 0 && mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
           mount(partial.c_str(), partial.c_str(), nullptr, MS_BIND, nullptr) == 0;
  });
  const CommandResult result = command.Wait();
  if (result.exit_code == 77) GTEST_SKIP() << "mounting is not possible here";
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("row 0, column 0"), HasSubstr("cannot remove " + partial)));
}

TEST(PackCommandTest, AFileSizeLimitIsAClearError) {
  TemporaryFolder folder;
  MakeTinyCheckpoint("mixtral").Write(folder / "in");
  Command command("moed-pack", {folder / "in", folder / "out.store"}, [] {
    const rlimit limit{100000, 100000};
    return setrlimit(RLIMIT_FSIZE, &limit) == 0;
  });
  const CommandResult result = command.Wait();
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("out.store.partial"), HasSubstr("larger than allowed"), HasSubstr("bytes are needed")));
  EXPECT_FALSE(std::filesystem::exists(folder / "out.store"));
}

TEST(PackCommandTest, TooLittleSpaceIsSaidBeforeTheWorkBegins) {
  TemporaryFolder folder;
  MakeTinyCheckpoint("mixtral").Write(folder / "in");
  std::filesystem::create_directory(folder / "small");
  const std::string mount_point = folder / "small";
  // A file system of its own, seen by the child alone.
  Command command("moed-pack", {folder / "in", folder / "small/out.store"}, [&] {
    return unshare(CLONE_NEWNS) == 0 && mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
           mount("small", mount_point.c_str(), "tmpfs", 0, "size=256k") == 0;
  });
  const CommandResult result = command.Wait();
  if (result.exit_code == 77) GTEST_SKIP() << "mounting is not possible here";
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("not enough room in"), HasSubstr("the store needs"), HasSubstr("free are")));
}

TEST(PackCommandTest, AFullDiskIsCalledThat) {
  const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  ASSERT_GE(full, 0);
  const std::string bytes = "more than fits";
  const absl::Status status = WriteAt(full, "/mnt/out.store.partial", 0, std::as_bytes(std::span(bytes)));
  close(full);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("/mnt/out.store.partial"), HasSubstr("disk is full")));
}

}  // namespace command_test
}  // namespace moed
