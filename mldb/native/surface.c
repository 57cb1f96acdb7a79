/*
** surface.c: what must hold before a call, and where it writes.
**
** Inside the host's transaction, or under a statement that already writes: on the host's connection, so that the job
** comes and goes with their commit. In autocommit on a connection of ours: a running SELECT holds a snapshot, and SQLite
** refuses to write from it as soon as a worker has committed.
*/
#define _POSIX_C_SOURCE 200809L

#include <unistd.h>

#include "ml_jobs.h"
#include "ml_sql.h"

SQLITE_EXTENSION_INIT3

Surface *surface_hold(Surface *surface){
  surface->holders++;
  return surface;
}

/* Called for each function, module and table that goes. */
void surface_release(void *given){
  Surface *surface = given;
  if( --surface->holders>0 ) return;
  kept_drop(&surface->writer_kept);
  sqlite3_close(surface->writer);
  sqlite3_free(surface);
}

/* Gives 1 in a transaction of the host, and under a statement that writes the main database. */
int is_inside(Surface *surface){
  return !sqlite3_get_autocommit(surface->db) || sqlite3_txn_state(surface->db, "main")==SQLITE_TXN_WRITE;
}

/* Gives 1 when a connection may not write: opened read-only, or query_only. */
int is_barred(sqlite3 *db, Fault *fault){
  return sqlite3_db_readonly(db, "main")==1 || query_number(db, SQL_is_query_only, fault)!=0;
}

int require_shared(sqlite3 *db, Fault *fault){
  Query query;
  query_open(&query, db, SQL_locking_mode, fault);
  if( query_step(&query) && sqlite3_stricmp((const char*)sqlite3_column_text(query.stmt, 0), "normal")!=0 ){
    fault_say(fault, SQLITE_ERROR,
              "this connection locks the database exclusively and keeps workers out; "
              "run PRAGMA locking_mode = NORMAL");
  }
  return query_close(&query);
}

/* A fault, which says what to do first, unless the main database has our schema and is in WAL mode. */
int require_ready(Surface *surface, Fault *fault){
  main_file(surface->db, fault);
  if( surface->pid!=getpid() ){
    fault_say(fault, SQLITE_ERROR,
              "this queue was opened before fork() and belongs to the parent process; "
              "start the child with the spawn method instead, and open the file there");
  }
  if( !surface->is_ready && schema_check(surface->db, fault)==SQLITE_OK ) surface->is_ready = 1;
  return fault->code;
}

/* As require_ready; a fault as well where the host's own connection may not write. */
int require_writable(Surface *surface, Fault *fault){
  require_ready(surface, fault);
  require_shared(surface->db, fault);
  if( fault->code==SQLITE_OK && is_barred(surface->db, fault) ){
    fault_say(fault, SQLITE_READONLY,
              "this connection is read-only, so it cannot change jobs or wait for them; open it for writing");
  }
  return fault->code;
}

/* Our own connection for writing, opened when it is first needed. */
static sqlite3 *writer_of(Surface *surface, Fault *fault){
  if( surface->writer==0 && fault->code==SQLITE_OK ){
    sqlite3 *db = open_beside(surface->db, SQLITE_OPEN_READWRITE, fault);
    if( db ){
      /* While it is open nobody can leave WAL, so this is looked at once. */
      require_wal(db, fault);
      query_run(db, SQL_sync_each_commit, fault);
      query_run(db, SQL_cut_the_wal, fault);
      if( fault->code==SQLITE_OK ){
        surface->writer = db;
      }else{
        sqlite3_close(db);
      }
    }
  }
  return surface->writer;
}

/* Connects ML_JOBS on the host's connection, so that statements can be kept there: SQLite will say when they must go. */
static void keep_on_host(Surface *surface){
  if( surface->tables==0 ){
    Fault ignored = {SQLITE_OK, 0, 0};
    Query query;
    query_open(&query, surface->db, SQL_meet_jobs, &ignored);
    query_close(&query);
    fault_clear(&ignored);
  }
}

/* Finds the connection to write on. `several` statements that hold together get a transaction. Call writing_end. */
void writing_begin(Writing *writing, Surface *surface, int several, Fault *fault){
  writing->surface = surface;
  writing->db = 0;
  writing->began = 0;
  writing->rowid = sqlite3_last_insert_rowid(surface->db);
  if( fault->code!=SQLITE_OK ) return;
  if( is_inside(surface) ){
    keep_on_host(surface);
    writing->db = surface->db;
    return;
  }
  writing->db = writer_of(surface, fault);
  if( several && fault->code==SQLITE_OK ) writing->began = query_run(writing->db, SQL_begin_writing, fault)==SQLITE_OK;
}

int writing_end(Writing *writing, Fault *fault){
  if( writing->db==writing->surface->db ){
    /* last_insert_rowid() is the host's: it tells what their own INSERT made. */
    sqlite3_set_last_insert_rowid(writing->db, writing->rowid);
  }else if( writing->began ){
    query_run(writing->db, SQL_commit, fault);
    /* After a full disk or an I/O error SQLite has rolled back already. */
    if( !sqlite3_get_autocommit(writing->db) ){
      Fault ignored = {SQLITE_OK, 0, 0};
      query_run(writing->db, SQL_rollback, &ignored);
      fault_clear(&ignored);
    }
  }
  return fault->code;
}
