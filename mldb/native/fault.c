/*
** fault.c: what went wrong, in words that say what to do next. The words of locks, full disks and files that cannot be
** written are those of mldb/connection.py.
*/
#include <stdarg.h>

#include "ml_jobs.h"

SQLITE_EXTENSION_INIT3

/* Notes a fault unless there is one already. */
int fault_say(Fault *fault, int code, const char *format, ...){
  va_list arguments;
  if( fault->code!=SQLITE_OK ) return fault->code;
  va_start(arguments, format);
  fault->words = sqlite3_vmprintf(format, arguments);
  va_end(arguments);
  fault->code = fault->words ? code : SQLITE_NOMEM;
  return fault->code;
}

/* Notes the error that a connection reports. */
int fault_of(Fault *fault, sqlite3 *db, int code){
  switch( code & 0xff ){
    case SQLITE_OK:
    case SQLITE_ROW:
    case SQLITE_DONE:
      return fault->code;
    case SQLITE_NOMEM:
      if( fault->code==SQLITE_OK ) fault->code = SQLITE_NOMEM;
      return fault->code;
    case SQLITE_READONLY: {
      const char *path = sqlite3_db_filename(db, "main");
      return fault_say(fault, SQLITE_READONLY,
                       "%s cannot be written here; open it for writing, or check the rights of the file",
                       path && *path ? path : "the database");
    }
    case SQLITE_FULL:
      return fault_say(fault, SQLITE_FULL,
                       "the disk is full, nothing was written; free some space and try again");
    case SQLITE_BUSY:
      if( sqlite3_extended_errcode(db)==SQLITE_BUSY_SNAPSHOT ){
        return fault_say(fault, SQLITE_BUSY,
                         "another connection committed since this transaction began to read; "
                         "ROLLBACK, and begin it again with BEGIN IMMEDIATE");
      }
      return fault_say(fault, SQLITE_BUSY,
                       "another connection holds the write lock of the database; let it COMMIT, then try again");
    default:
      return fault_say(fault, code & 0xff, "%s", db ? sqlite3_errmsg(db) : sqlite3_errstr(code));
  }
}

void fault_clear(Fault *fault){
  sqlite3_free(fault->words);
  fault->words = 0;
  fault->code = SQLITE_OK;
}

/* Makes a function fail with a fault, and lets go of it. All codes but two become SQLITE_ERROR, because SQLite answers
** some (FULL, IOERR) by rolling the host's transaction back. */
void fault_report(Fault *fault, sqlite3_context *context){
  if( fault->code==SQLITE_OK ) return;
  if( fault->code==SQLITE_NOMEM || fault->words==0 ){
    sqlite3_result_error_nomem(context);
  }else{
    sqlite3_result_error(context, fault->words, -1);
    if( fault->code==SQLITE_INTERRUPT ) sqlite3_result_error_code(context, SQLITE_INTERRUPT);
  }
  fault_clear(fault);
}
