#include "server/wire/certificates.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <algorithm>
#include <ctime>
#include <limits>
#include <utility>
#include <vector>

#include "core/base/bounded_file.h"
#include "core/base/status.h"

namespace moed {
namespace {

constexpr size_t kMostFileBytes = 1 << 20;

constexpr const char* kCertificateFlag = "--tls-cert";
constexpr const char* kKeyFlag = "--tls-key";
constexpr const char* kClientCaFlag = "--tls-client-ca";

template <auto kFree>
struct Freeing {
  template <class T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using Bio = std::unique_ptr<BIO, Freeing<BIO_free>>;
using Certificate = std::unique_ptr<X509, Freeing<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Freeing<EVP_PKEY_free>>;

Bio BioOf(const std::string& text) { return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size()))); }

// An encrypted key would have its password asked for on the terminal.
int NoPassword(char*, int, int, void*) { return -1; }

absl::StatusOr<std::string> ReadFile(std::string_view flag, const std::string& path) {
  absl::StatusOr<std::string> text = ReadBoundedFile(path, kMostFileBytes);
  if (text.ok()) return text;
  return InvalidArgument(flag, ": ", text.status().message(), "; give a file that the user of this process may read");
}

std::string TimeText(const ASN1_TIME* time) {
  const Bio bio(BIO_new(BIO_s_mem()));
  ASN1_TIME_print(bio.get(), time);
  char text[64] = {};
  BIO_read(bio.get(), text, sizeof(text) - 1);
  return text;
}

absl::Status CheckTime(std::string_view flag, const std::string& path, const X509& certificate) {
  const ASN1_TIME* begin = X509_get0_notBefore(&certificate);
  const ASN1_TIME* end = X509_get0_notAfter(&certificate);
  if (X509_cmp_current_time(end) < 0) {
    return InvalidArgument(flag, ": a certificate in '", path, "' expired on ", TimeText(end),
                           "; put a renewed one in its place");
  }
  if (X509_cmp_current_time(begin) > 0) {
    return InvalidArgument(flag, ": a certificate in '", path, "' is not valid before ", TimeText(begin),
                           "; look at this machine's clock, or have another one made");
  }
  return absl::OkStatus();
}

// All certificates of a file. What stands between them is skipped, as PEM has it.
absl::StatusOr<std::vector<Certificate>> ParseCertificates(std::string_view flag, const std::string& path,
                                                           const std::string& text) {
  std::vector<Certificate> certificates;
  const Bio bio = BioOf(text);
  while (X509* certificate = PEM_read_bio_X509(bio.get(), nullptr, NoPassword, nullptr)) certificates.emplace_back(certificate);
  const bool at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  ERR_clear_error();
  if (certificates.empty() || !at_end) {
    return InvalidArgument(flag, ": '", path, "' ", certificates.empty() ? "holds no certificate" : "ends within a certificate",
                           "; PEM is wanted, from -----BEGIN CERTIFICATE----- to -----END CERTIFICATE-----");
  }
  for (const Certificate& certificate : certificates) MOED_RETURN_IF_ERROR(CheckTime(flag, path, *certificate));
  return certificates;
}

int64_t FirstEnd(const std::vector<Certificate>& certificates) {
  int64_t first = std::numeric_limits<int64_t>::max();
  for (const Certificate& certificate : certificates) {
    std::tm end{};
    ASN1_TIME_to_tm(X509_get0_notAfter(certificate.get()), &end);  // CheckTime has read it
    first = std::min<int64_t>(first, timegm(&end));
  }
  return first;
}

absl::Status CheckKey(const TlsFiles& files, const std::string& text, X509& certificate) {
  const Bio bio = BioOf(text);
  const Key key(PEM_read_bio_PrivateKey(bio.get(), nullptr, NoPassword, nullptr));
  const bool fits = key != nullptr && X509_check_private_key(&certificate, key.get()) == 1;
  ERR_clear_error();
  if (key == nullptr) {
    return InvalidArgument(kKeyFlag, ": '", files.key,
                           "' holds no private key that can be read without a password; PEM is wanted, ",
                           "as openssl pkey writes it");
  }
  if (!fits) {
    return InvalidArgument(kKeyFlag, ": the key in '", files.key, "' is not that of the certificate in '", files.certificate,
                           "' (", kCertificateFlag, "); give the two that were made together");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckTlsFiles(const TlsFiles& files) {
  const bool has_certificate = !files.certificate.empty(), has_key = !files.key.empty();
  if (has_certificate != has_key) {
    return InvalidArgument(has_certificate ? kCertificateFlag : kKeyFlag, ": ", has_certificate ? kKeyFlag : kCertificateFlag,
                           " is missing: TLS takes a certificate and its key");
  }
  if (!files.client_ca.empty() && !has_certificate) {
    return InvalidArgument(kClientCaFlag, ": ", kCertificateFlag, " and ", kKeyFlag,
                           " are missing: clients show their certificates within TLS");
  }
  return absl::OkStatus();
}

absl::StatusOr<TlsMaterial> ReadTlsMaterial(const TlsFiles& files) {
  MOED_RETURN_IF_ERROR(CheckTlsFiles(files));
  TlsMaterial material;
  MOED_ASSIGN_OR_RETURN(material.certificate, ReadFile(kCertificateFlag, files.certificate));
  MOED_ASSIGN_OR_RETURN(const auto chain, ParseCertificates(kCertificateFlag, files.certificate, material.certificate));
  MOED_ASSIGN_OR_RETURN(material.key, ReadFile(kKeyFlag, files.key));
  MOED_RETURN_IF_ERROR(CheckKey(files, material.key, *chain.front()));
  material.end_seconds = FirstEnd(chain);
  if (files.client_ca.empty()) return material;
  MOED_ASSIGN_OR_RETURN(material.client_ca, ReadFile(kClientCaFlag, files.client_ca));
  MOED_ASSIGN_OR_RETURN(const auto authorities, ParseCertificates(kClientCaFlag, files.client_ca, material.client_ca));
  material.end_seconds = std::min(material.end_seconds, FirstEnd(authorities));
  return material;
}

absl::StatusOr<std::unique_ptr<Certificates>> Certificates::Read(const TlsFiles& files) {
  MOED_ASSIGN_OR_RETURN(TlsMaterial material, ReadTlsMaterial(files));
  return std::unique_ptr<Certificates>(new Certificates(files, std::move(material)));
}

std::shared_ptr<const TlsMaterial> Certificates::current() const {
  absl::MutexLock lock(&mutex_);
  return current_;
}

absl::Status Certificates::Reload() {
  MOED_ASSIGN_OR_RETURN(TlsMaterial material, ReadTlsMaterial(files_));
  auto read = std::make_shared<const TlsMaterial>(std::move(material));
  absl::MutexLock lock(&mutex_);
  current_ = std::move(read);
  return absl::OkStatus();
}

}  // namespace moed
