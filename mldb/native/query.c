/*
** query.c: runs a statement of sql/ once. Parameters are bound by name.
**
** Statements stay prepared on our own connection. On the host's they do only while ML_JOBS is connected there, and are let
** go when SQLite disconnects it: a statement of ours that is left would keep the host from closing its connection.
*/
#include <string.h>

#include "ml_jobs.h"
#include "ml_sql.h"

SQLITE_EXTENSION_INIT3

/* Gives where the statements of a connection are kept; NULL for nowhere. */
static Kept *kept_for(const Query *query){
  Surface *surface = query->fault->surface;
  /* A prepared pragma may give the value of the time when it was prepared. */
  if( surface==0 || sqlite3_strnicmp(query->sql, "PRAGMA", 6)==0 ) return 0;
  if( query->db==surface->writer ) return &surface->writer_kept;
  return query->db==surface->db && surface->tables>0 ? &surface->host_kept : 0;
}

static sqlite3_stmt *take(Kept *kept, const char *sql){
  int each;
  for(each=0; kept && each<KEPT_STATEMENTS; each++){
    sqlite3_stmt *stmt = kept->stmt[each];
    if( stmt && (kept->sql[each]==sql || strcmp(kept->sql[each], sql)==0) ){
      kept->stmt[each] = 0;
      return stmt;
    }
  }
  return 0;
}

/* Keeps a statement if there is room, else lets it go. */
static void put_back(Kept *kept, const char *sql, sqlite3_stmt *stmt){
  int each;
  for(each=0; kept && stmt && each<KEPT_STATEMENTS; each++){
    if( kept->stmt[each]==0 ){
      sqlite3_reset(stmt);
      sqlite3_clear_bindings(stmt);
      kept->sql[each] = sql;
      kept->stmt[each] = stmt;
      return;
    }
  }
  sqlite3_finalize(stmt);
}

/* Lets all of them go. */
void kept_drop(Kept *kept){
  int each;
  for(each=0; each<KEPT_STATEMENTS; each++){
    sqlite3_finalize(kept->stmt[each]);
    kept->stmt[each] = 0;
  }
}

void query_open(Query *query, sqlite3 *db, const char *sql, Fault *fault){
  query->db = db;
  query->sql = sql;
  query->fault = fault;
  query->stmt = 0;
  if( fault->code==SQLITE_OK ){
    Kept *kept = kept_for(query);
    query->stmt = take(kept, sql);
    if( query->stmt==0 ){
      unsigned flags = kept ? SQLITE_PREPARE_PERSISTENT : 0;
      fault_of(fault, db, sqlite3_prepare_v3(db, sql, -1, flags, &query->stmt, 0));
    }
  }
}

/* The place of a parameter; 0, which no bind accepts, after a fault. */
static int place_of(Query *query, const char *name){
  return query->fault->code==SQLITE_OK ? sqlite3_bind_parameter_index(query->stmt, name) : 0;
}

static void bound(Query *query, int code){
  if( query->fault->code==SQLITE_OK ) fault_of(query->fault, query->db, code);
}

void query_int(Query *query, const char *name, sqlite3_int64 value){
  int place = place_of(query, name);
  if( place ) bound(query, sqlite3_bind_int64(query->stmt, place, value));
}

/* NULL for a NULL pointer. */
void query_text(Query *query, const char *name, const char *value){
  int place = place_of(query, name);
  if( place ) bound(query, sqlite3_bind_text(query->stmt, place, value, -1, SQLITE_TRANSIENT));
}

/* NULL for a NULL pointer. */
void query_value(Query *query, const char *name, sqlite3_value *value){
  int place = place_of(query, name);
  if( place && value ) bound(query, sqlite3_bind_value(query->stmt, place, value));
}

/* Gives 1 for a row, 0 at the end and after a fault. */
int query_step(Query *query){
  int code;
  if( query->fault->code!=SQLITE_OK ) return 0;
  code = sqlite3_step(query->stmt);
  if( code==SQLITE_ROW ) return 1;
  if( code!=SQLITE_DONE ) fault_of(query->fault, query->db, code);
  return 0;
}

int query_close(Query *query){
  if( query->stmt ) put_back(kept_for(query), query->sql, query->stmt);
  query->stmt = 0;
  return query->fault->code;
}

/* Runs a statement without parameters to its end. */
int query_run(sqlite3 *db, const char *sql, Fault *fault){
  Query query;
  query_open(&query, db, sql, fault);
  while( query_step(&query) ){}
  return query_close(&query);
}

/* Gives the one number of a statement without parameters; 0 after a fault. */
sqlite3_int64 query_number(sqlite3 *db, const char *sql, Fault *fault){
  Query query;
  sqlite3_int64 number = 0;
  query_open(&query, db, sql, fault);
  if( query_step(&query) ) number = sqlite3_column_int64(query.stmt, 0);
  query_close(&query);
  return number;
}

/* Gives a copy of a text of the row, or NULL after a fault and for a NULL; free it with sqlite3_free. */
char *query_copy(Query *query, int column){
  const char *text;
  char *copy;
  if( query->fault->code!=SQLITE_OK || sqlite3_column_type(query->stmt, column)==SQLITE_NULL ) return 0;
  text = (const char*)sqlite3_column_text(query->stmt, column);
  copy = text ? sqlite3_mprintf("%s", text) : 0;
  if( copy==0 ) fault_of(query->fault, query->db, SQLITE_NOMEM);
  return copy;
}

/* Gives a value as SQL would write it, shortened; NULL after a fault. */
char *shown(sqlite3 *db, sqlite3_value *value, Fault *fault){
  Query query;
  char *text = 0;
  query_open(&query, db, SQL_shown, fault);
  query_value(&query, ":value", value);
  if( query_step(&query) ) text = query_copy(&query, 0);
  query_close(&query);
  return text;
}
