/*
** beside.c: opens connections of ours beside the host's, through the host's own SQLite and never another one: two
** libraries on one file in one process drop each other's locks.
*/
#define _POSIX_C_SOURCE 200809L

#include <unistd.h>

#include "ml_jobs.h"
#include "ml_sql.h"

SQLITE_EXTENSION_INIT3

#define OPEN_ATTEMPTS 50

/* Gives the path of the host's main database; a fault when it has no file. */
const char *main_file(sqlite3 *host, Fault *fault){
  const char *path = sqlite3_db_filename(host, "main");
  if( fault->code==SQLITE_OK && (path==0 || *path==0) ){
    fault_say(fault, SQLITE_ERROR,
              "the queue needs a database in a file, because workers open it a second time; "
              "this connection is in memory or temporary; use mldb.open(':memory:') or a path");
  }
  return path;
}

/* Gives 1 when the main database is in WAL mode. */
int is_wal(sqlite3 *db, Fault *fault){
  Query query;
  int found = 0;
  query_open(&query, db, SQL_journal_mode, fault);
  if( query_step(&query) ) found = sqlite3_stricmp((const char*)sqlite3_column_text(query.stmt, 0), "wal")==0;
  query_close(&query);
  return found;
}

void require_wal(sqlite3 *db, Fault *fault){
  Query query;
  query_open(&query, db, SQL_journal_mode, fault);
  if( query_step(&query) ){
    const char *mode = (const char*)sqlite3_column_text(query.stmt, 0);
    if( sqlite3_stricmp(mode, "wal")!=0 ){
      fault_say(fault, SQLITE_ERROR,
                "the queue needs journal mode WAL and the database is in mode %s; run SELECT ml_init()", mode);
    }
  }
  query_close(&query);
}

/* Gives 1 when our own tables, whose rules call JSON functions, work on a connection that distrusts schemas. */
static int json_is_harmless(void){
  Fault fault = {SQLITE_OK, 0, 0};
  sqlite3 *db = 0;
  int harmless = 0;
  if( sqlite3_open_v2(":memory:", &db, SQLITE_OPEN_READWRITE|SQLITE_OPEN_CREATE|SQLITE_OPEN_NOMUTEX, 0)==SQLITE_OK ){
    sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, (int*)0);
    harmless = query_run(db, SQL_rule_with_json, &fault)==SQLITE_OK;
    fault_clear(&fault);
  }
  sqlite3_close(db);
  return harmless;
}

/* Views and triggers of a file from elsewhere are kept away from functions that could do harm. */
static void distrust_the_schema(sqlite3 *db){
  sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, (int*)0);
  sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, !json_is_harmless(), (int*)0);
}

/* A checkpoint by a SQLite with the WAL-reset fault may lose another's commit: workers do them there. */
static void checkpoint_only_safely(sqlite3 *db, Fault *fault){
  if( query_number(db, SQL_checkpoints_are_safe, fault) ){
    sqlite3_wal_autocheckpoint(db, 4000);  /* not 1000: that doubled single claims */
  }else if( fault->code==SQLITE_OK ){
    sqlite3_wal_autocheckpoint(db, 0);
    sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, (int*)0);
  }
}

/* Opens the file of the host's main database once more; NULL after a fault. Close it with sqlite3_close. */
sqlite3 *open_beside(sqlite3 *host, int flags, Fault *fault){
  const char *path = main_file(host, fault);
  sqlite3_vfs *vfs = 0;
  int attempt;
  if( fault->code!=SQLITE_OK ) return 0;
  sqlite3_file_control(host, "main", SQLITE_FCNTL_VFS_POINTER, &vfs);
  flags |= SQLITE_OPEN_PRIVATECACHE | SQLITE_OPEN_NOMUTEX;
  /* Opening may meet another process that recovers the WAL or deletes it as the last to close: that passes. */
  for(attempt=1; ; attempt++){
    sqlite3 *db = 0;
    Query look;
    int code = sqlite3_open_v2(path, &db, flags, vfs ? vfs->zName : 0);
    if( code==SQLITE_OK ){
      sqlite3_busy_timeout(db, BUSY_TIMEOUT_MS);
      sqlite3_extended_result_codes(db, 0);
      distrust_the_schema(db);
      query_open(&look, db, SQL_read_schema, fault);
      while( query_step(&look) ){}
      if( query_close(&look)==SQLITE_OK ){
        checkpoint_only_safely(db, fault);
        if( fault->code==SQLITE_OK ) return db;
      }
      code = fault->code;
    }
    sqlite3_close(db);
    if( code==SQLITE_CANTOPEN && attempt<OPEN_ATTEMPTS && access(path, R_OK)==0 ){
      fault_clear(fault);
      sqlite3_sleep(20);
    }else if( code==SQLITE_CANTOPEN ){
      fault_clear(fault);
      fault_say(fault, SQLITE_ERROR,
                "cannot open %s; check that it exists and that you may read and write it", path);
      return 0;
    }else if( code==SQLITE_NOTADB ){
      fault_clear(fault);
      fault_say(fault, SQLITE_ERROR, "%s is not a SQLite database; give another file", path);
      return 0;
    }else{
      fault_of(fault, 0, code);
      return 0;
    }
  }
}

/* As open_beside, for reading only. */
sqlite3 *open_reader(sqlite3 *host, Fault *fault){
  sqlite3 *db = open_beside(host, SQLITE_OPEN_READONLY, fault);
  if( db==0 ) return 0;
  query_run(db, SQL_only_read, fault);
  if( fault->code!=SQLITE_OK ){
    sqlite3_close(db);
    return 0;
  }
  return db;
}
