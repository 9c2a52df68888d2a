// What the engine does when a background operation fails: it reports that, and stops writes until it is resumed.
//
// The engine sorts most failures of system calls (no descriptors left, a failed sync or flush) under errors that only a restart ends. They are errors
// that can be resumed from here: `log_ahead.cc` seals the log, and the engine writes all that it has in memory to files before it takes writes again.
//
// `scripts/rocksdb.sh` compiles this behind `log_ahead.cc`.

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "rocksdb/db.h"
#include "rocksdb/listener.h"
#include "rocksdb/options.h"

namespace settee {

// What a report is about. `crates/storage/src/engine/recovery.rs` has the same numbers.
enum Kind : int {
  // Writes are refused until the engine is resumed.
  STOPPED = 0,
  // Writes are refused until the server is restarted.
  BROKEN = 1,
  // A compaction failed. It is tried again; writes go on.
  COMPACTION = 2,
};

using Report = void (*)(void* state, int kind, const char* text);
using Release = void (*)(void* state);

class ErrorListener : public EventListener {
 public:
  ErrorListener(const std::shared_ptr<Logs>& logs, Report report,
                Release release, void* state)
      : logs_(logs), report_(report), release_(release), state_(state) {}

  ~ErrorListener() override { release_(state_); }

  void OnBackgroundError(BackgroundErrorReason reason, Status* error) override {
    const bool is_failed_call =
        error->IsIOError() && !error->IsIOFenced() &&
        error->severity() < Status::Severity::kUnrecoverableError;
    if (reason == BackgroundErrorReason::kCompaction && is_failed_call) {
      report_(state_, COMPACTION, error->ToString().c_str());
      // What it read is still there, and it is tried again. While the disk is full the engine waits for room by itself.
      if (error->subcode() != Status::SubCode::kNoSpace) {
        *error = Status::OK();
      }
      return;
    }
    logs_->is_suspect = true;
    if (is_failed_call && error->severity() == Status::Severity::kFatalError) {
      *error = Status(*error, Status::Severity::kHardError);
    }
    if (error->severity() < Status::Severity::kHardError) {
      return;
    }
    const bool is_resumable = error->severity() == Status::Severity::kHardError;
    report_(state_, is_resumable ? STOPPED : BROKEN, error->ToString().c_str());
  }

  // Who resumes is `crates/storage/src/engine/recovery.rs`, whatever the cause.
  void OnErrorRecoveryBegin(BackgroundErrorReason, Status error,
                            bool* auto_recovery) override {
    if (error.severity() >= Status::Severity::kHardError) {
      *auto_recovery = false;
    }
  }

 private:
  const std::shared_ptr<Logs> logs_;
  const Report report_;
  const Release release_;
  void* const state_;
};

std::shared_ptr<Logs> LogsOf(rocksdb_env_t* env) {
  const auto files = std::static_pointer_cast<Files>(env->rep->GetFileSystem());
  return files->logs();
}

}  // namespace settee

extern "C" {

// Has the engine that is opened with these options report its errors, from any of its threads, to `report`. `release` is called once, after the
// last report. `env` is of `settee_env_create`, and the one that the engine is opened with.
void settee_report_errors(rocksdb_options_t* options, rocksdb_env_t* env,
                          settee::Report report, settee::Release release,
                          void* state) {
  options->rep.listeners.push_back(std::make_shared<settee::ErrorListener>(
      settee::LogsOf(env), report, release, state));
}

// Tells the files of `env` which engine they are of, for the time that it is open.
void settee_attach(rocksdb_env_t* env, rocksdb_t* db) {
  settee::LogsOf(env)->db = db->rep;
}

// Has the engine take writes again after an error: null, or why it does not, which is the caller's to free by `rocksdb_free`.
char* settee_resume(rocksdb_t* db) {
  const ROCKSDB_NAMESPACE::Status resumed = db->rep->Resume();
  return resumed.ok() ? nullptr : strdup(resumed.ToString().c_str());
}
}
