/*
** jobs_table.c: ML_JOBS, the jobs as a table: its columns, its plans, and its writes, which are submits, cancels and
** deletes on the host's own connection. jobs_cursor.c reads. Python does the same in mldb/jobs_table.py.
*/
#include <string.h>

#include "ml_jobs.h"
#include "ml_sql.h"

SQLITE_EXTENSION_INIT3

#define FULL_SCAN 1000000.0
#define BIT(column) ((sqlite3_uint64)1<<(column))
#define DEAR_COLUMNS (BIT(JOB_SPEC)|BIT(JOB_DURATION)|BIT(JOB_MESSAGE))

static const char *const insert_columns[] = {INSERT_COLUMNS};
static const char *const option_columns[] = {INSERT_OPTION_COLUMNS};

/* Hands a fault to SQLite as the error of the table. */
int table_fault(sqlite3_vtab *table, Fault *fault){
  int code = fault->code==SQLITE_OK || fault->code==SQLITE_NOMEM || fault->code==SQLITE_INTERRUPT ? fault->code
                                                                                              : SQLITE_ERROR;
  if( code==SQLITE_ERROR ){
    sqlite3_free(table->zErrMsg);
    table->zErrMsg = fault->words;
    fault->words = 0;
  }
  fault_clear(fault);
  return code;
}

static int table_disconnect(sqlite3_vtab *base){
  JobsTable *table = (JobsTable*)base;
  int each;
  if( --table->surface->tables==0 ) kept_drop(&table->surface->host_kept);
  surface_release(table->surface);
  for(each=0; each<table->columns; each++) sqlite3_free(table->names[each]);
  sqlite3_free(table->names);
  sqlite3_free(table);
  return SQLITE_OK;
}

/* Reads the columns of the view ml_job_list from a queue in memory, and writes the declaration of the table. No statement
** runs on the host's connection: it is in the middle of preparing one. */
static char *table_columns(JobsTable *table, Fault *fault){
  sqlite3 *blank = schema_blank(-1, fault);
  sqlite3_str *text = sqlite3_str_new(0);
  Query query;
  if( blank==0 ){
    sqlite3_free(sqlite3_str_finish(text));
    return 0;
  }
  sqlite3_str_appendall(text, "CREATE TABLE ML_JOBS (");
  query_open(&query, blank, SQL_job_columns, fault);
  while( query_step(&query) ){
    char **names = sqlite3_realloc64(table->names, (sqlite3_uint64)(table->columns+1)*sizeof(*names));
    if( names==0 ){
      fault_of(fault, blank, SQLITE_NOMEM);
      break;
    }
    table->names = names;
    names[table->columns] = query_copy(&query, 0);
    if( names[table->columns]==0 ) break;
    sqlite3_str_appendf(text, "%s%s %s", table->columns ? ", " : "", names[table->columns],
                        sqlite3_column_text(query.stmt, 1));
    table->columns++;
  }
  query_close(&query);
  sqlite3_str_appendall(text, ")");
  sqlite3_close(blank);
  return sqlite3_str_finish(text);
}

static int table_connect(sqlite3 *db, void *given, int count, const char *const *words, sqlite3_vtab **made,
                         char **problem){
  Fault fault = {SQLITE_OK, 0, 0};
  JobsTable *table = sqlite3_malloc(sizeof(*table));
  char *declaration;
  int code;
  (void)count;
  (void)words;
  if( table==0 ) return SQLITE_NOMEM;
  memset(table, 0, sizeof(*table));
  /* Held: a module that is replaced goes before its table. */
  table->surface = surface_hold(given);
  table->surface->tables++;
  declaration = table_columns(table, &fault);
  if( fault.code==SQLITE_OK && declaration==0 ) fault.code = SQLITE_NOMEM;
  code = fault.code==SQLITE_OK ? sqlite3_declare_vtab(db, declaration) : fault.code;
  sqlite3_free(declaration);
  if( code==SQLITE_OK ){
    /* Writable, so views and triggers of a file from elsewhere must not reach it. */
    sqlite3_vtab_config(db, SQLITE_VTAB_DIRECTONLY);
    *made = &table->base;
  }else{
    *problem = fault.words ? sqlite3_mprintf("%s", fault.words) : 0;
    table_disconnect(&table->base);
  }
  fault_clear(&fault);
  return code;
}

/* Gives the word of the plan for a constraint, 0 for one that is not pushed down. */
static char word_of(int column, int operator){
  switch( column ){
    case -1:
    case JOB_ID:
      switch( operator ){
        case SQLITE_INDEX_CONSTRAINT_EQ: return PLAN_ID;
        case SQLITE_INDEX_CONSTRAINT_GT: return PLAN_ABOVE;
        case SQLITE_INDEX_CONSTRAINT_GE: return PLAN_FROM;
        case SQLITE_INDEX_CONSTRAINT_LT: return PLAN_BELOW;
        case SQLITE_INDEX_CONSTRAINT_LE: return PLAN_TO;
        default: return 0;
      }
    case JOB_STATUS: return operator==SQLITE_INDEX_CONSTRAINT_EQ ? PLAN_STATUS : 0;
    case JOB_KIND: return operator==SQLITE_INDEX_CONSTRAINT_EQ ? PLAN_KIND : 0;
    case JOB_TARGET: return operator==SQLITE_INDEX_CONSTRAINT_EQ ? PLAN_TARGET : 0;
    default: return 0;
  }
}

static double cost_of(const char *plan){
  double cost = FULL_SCAN;
  for(; *plan; plan++){
    switch( *plan ){
      case PLAN_ID: if( cost>1.0 ) cost = 1.0; break;
      case PLAN_STATUS: if( cost>1000.0 ) cost = 1000.0; break;
      case PLAN_KIND: cost *= 0.5; break;
      case PLAN_TARGET: cost *= 0.3; break;
      case PLAN_UP:
      case PLAN_CHEAP:
      case PLAN_DOWN: break;
      default: cost *= 0.7; break;
    }
  }
  return cost;
}

/* Chooses what to push down. The plan, in idxStr, has a letter for the order and one for each value. */
static int table_best_index(sqlite3_vtab *base, sqlite3_index_info *info){
  char plan[16] = {PLAN_UP, 0};
  int used = 0, limit = -1, each;
  int clean = 1;  /* all constraints are pushed down, so a LIMIT may be as well */
  (void)base;
  for(each=0; each<info->nConstraint; each++){
    const struct sqlite3_index_constraint *constraint = &info->aConstraint[each];
    char word = word_of(constraint->iColumn, constraint->op);
    if( constraint->op==SQLITE_INDEX_CONSTRAINT_LIMIT ){
      limit = constraint->usable ? each : -1;
      continue;
    }
    if( constraint->op==SQLITE_INDEX_CONSTRAINT_OFFSET || word==0 || !constraint->usable || strchr(plan+1, word)
     || (word==PLAN_STATUS && strchr(plan+1, PLAN_STATUSES))
     || (constraint->iColumn>=0 && sqlite3_stricmp(sqlite3_vtab_collation(info, each), "BINARY")!=0) ){
      clean = 0;
      continue;
    }
    if( word==PLAN_STATUS && sqlite3_vtab_in(info, each, -1) ){
      sqlite3_vtab_in(info, each, 1);
      word = PLAN_STATUSES;
    }
    plan[1+used++] = word;
    plan[1+used] = 0;
    /* SQLite checks each again: it costs little, and types decide (id = '5', status = 3). */
    info->aConstraintUsage[each].argvIndex = used;
    info->aConstraintUsage[each].omit = 0;
  }
  if( info->nOrderBy==1 && (info->aOrderBy[0].iColumn==-1 || info->aOrderBy[0].iColumn==JOB_ID) ){
    info->orderByConsumed = 1;
    if( info->aOrderBy[0].desc ) plan[0] = PLAN_DOWN;
  }
  if( plan[0]==PLAN_UP && (info->colUsed & DEAR_COLUMNS)==0 ) plan[0] = PLAN_CHEAP;
  if( limit>=0 && clean && (info->orderByConsumed || info->nOrderBy==0) ){
    plan[1+used++] = PLAN_LIMIT;
    plan[1+used] = 0;
    info->aConstraintUsage[limit].argvIndex = used;
  }
  info->idxStr = sqlite3_mprintf("%s", plan);
  if( info->idxStr==0 ) return SQLITE_NOMEM;
  info->needToFreeIdxStr = 1;
  info->estimatedCost = cost_of(plan);
  info->estimatedRows = info->estimatedCost<1.0 ? 1 : (sqlite3_int64)info->estimatedCost;
  if( strchr(plan+1, PLAN_ID) ) info->idxFlags = SQLITE_INDEX_SCAN_UNIQUE;
  return SQLITE_OK;
}

/* Asked once per statement or transaction that writes. */
static int table_begin(sqlite3_vtab *base){
  Surface *surface = ((JobsTable*)base)->surface;
  Fault fault = {SQLITE_OK, 0, surface};
  require_writable(surface, &fault);
  return table_fault(base, &fault);
}

static int is_listed(const char *const *list, const char *name){
  for(; *list; list++){
    if( strcmp(*list, name)==0 ) return 1;
  }
  return 0;
}

static int is_given(sqlite3_value *value){
  return sqlite3_value_type(value)!=SQLITE_NULL;
}

static int is_finite_or_text(sqlite3_value *value){
  double number = sqlite3_value_double(value);
  return sqlite3_value_type(value)!=SQLITE_BLOB
      && (sqlite3_value_type(value)!=SQLITE_FLOAT || (number-number)==0.0);
}

/* Binds the columns of an INSERT that are options of ml_submit to the parameters of the same names. */
static void bind_options(JobsTable *table, Query *query, sqlite3_value **fields, Fault *fault){
  int each;
  for(each=0; each<table->columns && fault->code==SQLITE_OK; each++){
    char parameter[64];
    if( !is_given(fields[each]) || !is_listed(option_columns, table->names[each]) ) continue;
    if( !is_finite_or_text(fields[each]) ){
      char *text = shown(table->surface->db, fields[each], fault);
      fault_say(fault, SQLITE_ERROR, "INSERT INTO ML_JOBS: %s must be a finite number or a text, not %s",
                table->names[each], text);
      sqlite3_free(text);
    }
    sqlite3_snprintf((int)sizeof(parameter), parameter, ":%s", table->names[each]);
    query_value(query, parameter, fields[each]);
  }
}

/* A fault when an INSERT sets what it cannot set; the first in the order of the alphabet is named. */
static void refuse_columns(JobsTable *table, int has_rowid, sqlite3_value **fields, Fault *fault){
  const char *wrong = has_rowid ? "id" : 0;
  sqlite3_str *names;
  char *list;
  int each;
  for(each=0; each<table->columns && !has_rowid; each++){
    const char *name = table->names[each];
    if( is_given(fields[each]) && !is_listed(insert_columns, name) && (wrong==0 || strcmp(name, wrong)<0) ) wrong = name;
  }
  if( wrong==0 ) return;
  names = sqlite3_str_new(0);
  for(each=0; insert_columns[each]; each++) sqlite3_str_appendf(names, "%s%s", each ? ", " : "", insert_columns[each]);
  list = sqlite3_str_finish(names);
  fault_say(fault, SQLITE_ERROR, "INSERT INTO ML_JOBS cannot set %s; give %s, or use ml_submit()", wrong, list);
  sqlite3_free(list);
}

/* Gives a target as a column of texts keeps it: "" for none, and the digits of a number. */
static void open_target(Query *query, sqlite3 *db, sqlite3_value *target, Fault *fault){
  query_open(query, db, SQL_as_text, fault);
  query_text(query, ":value", "");
  if( is_given(target) ) query_value(query, ":value", target);
  query_step(query);
}

/* Submits a job; gives its id. */
static sqlite3_int64 insert(JobsTable *table, sqlite3_value *rowid, sqlite3_value **fields, Fault *fault){
  sqlite3 *db = table->surface->db;
  Submission job = {fields[JOB_KIND], fields[JOB_TARGET], fields[JOB_SPEC], 0};
  Query options, target;
  sqlite3_int64 id = 0;
  refuse_columns(table, is_given(rowid), fields, fault);
  query_open(&options, db, SQL_given_options, fault);
  bind_options(table, &options, fields, fault);
  if( query_step(&options) ) job.options = sqlite3_column_value(options.stmt, 0);
  check_queries(table->surface, &job, fault);
  if( sqlite3_value_type(job.target)==SQLITE_BLOB ){
    id = job_submit(db, &job, fault);
  }else{
    open_target(&target, db, job.target, fault);
    if( fault->code==SQLITE_OK ) job.target = sqlite3_column_value(target.stmt, 0);
    id = job_submit(db, &job, fault);
    query_close(&target);
  }
  query_close(&options);
  return id;
}

/* Cancels a job; any other change is refused. */
static void update(JobsTable *table, sqlite3_value *row, sqlite3_value *new_row, sqlite3_value **fields, Fault *fault){
  int each, only_status = sqlite3_value_int64(row)==sqlite3_value_int64(new_row);
  const unsigned char *status = 0;
  for(each=0; each<table->columns; each++){
    if( sqlite3_value_nochange(fields[each]) ) continue;
    if( each==JOB_STATUS ){
      if( sqlite3_value_type(fields[each])==SQLITE_TEXT ) status = sqlite3_value_text(fields[each]);
    }else{
      only_status = 0;
    }
  }
  if( !only_status || status==0 || strcmp((const char*)status, "cancelled")!=0 ){
    fault_say(fault, SQLITE_ERROR,
              "the only change to ML_JOBS is SET status = 'cancelled'; submit another job for anything else");
  }
  job_cancel(table->surface->db, sqlite3_value_int64(row), fault);
}

/* Deletes a job that is over; the statement fails whole at one that is not. */
static void delete(JobsTable *table, sqlite3_int64 row, Fault *fault){
  char ids[32];
  sqlite3_snprintf((int)sizeof(ids), ids, "[%lld]", row);
  job_delete(table->surface->db, ids, fault);
  if( fault->code==SQLITE_CONSTRAINT ){
    fault_clear(fault);
    fault_say(fault, SQLITE_ERROR, "job %lld is not over, so it cannot be deleted; cancel it with ml_cancel(%lld) first",
              row, row);
  }
}

static int table_update(sqlite3_vtab *base, int count, sqlite3_value **values, sqlite3_int64 *rowid){
  JobsTable *table = (JobsTable*)base;
  Fault fault = {SQLITE_OK, 0, table->surface};
  if( count==1 ){
    delete(table, sqlite3_value_int64(values[0]), &fault);
  }else if( !is_given(values[0]) ){
    *rowid = insert(table, values[1], values+2, &fault);
  }else{
    update(table, values[0], values[1], values+2, &fault);
  }
  return table_fault(base, &fault);
}

/* Puts ML_JOBS on the host's connection. */
int jobs_table_install(Surface *surface){
  static const sqlite3_module module = {
    .iVersion = 0,
    .xConnect = table_connect,
    .xBestIndex = table_best_index,
    .xDisconnect = table_disconnect,
    .xOpen = cursor_open,
    .xClose = cursor_close,
    .xFilter = cursor_filter,
    .xNext = cursor_next,
    .xEof = cursor_eof,
    .xColumn = cursor_column,
    .xRowid = cursor_rowid,
    .xUpdate = table_update,
    .xBegin = table_begin,
  };
  return sqlite3_create_module_v2(surface->db, "ML_JOBS", &module, surface_hold(surface), surface_release);
}
