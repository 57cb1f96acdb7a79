/*
** sandbox.c: checks the queries in the spec of a new job, so that a misspelt column is told at once.
**
** SQLite's authorizer is what enforces it: it is asked about every table, column and function when a statement is
** prepared, also inside views. The lists of what is allowed are those of mldb/sandbox.py, through ml_sql.h. Nothing is
** run here; the worker checks again when it runs the job. Where Python places a fault with sqlglot's help, this gives
** SQLite's own words.
*/
#include <string.h>

#include "ml_jobs.h"
#include "ml_sql.h"

SQLITE_EXTENSION_INIT3

static const char *const our_tables[] = {SANDBOX_OUR_TABLES};
static const char *const functions[] = {SANDBOX_FUNCTIONS};
static const char *const table_functions[] = {SANDBOX_TABLE_FUNCTIONS};
static const char *const pragmas[] = {SANDBOX_PRAGMAS};
static const struct {
  const char *kind;
  const char *key;
} spec_queries[] = {SPEC_QUERIES};

/* One query under the list. */
typedef struct Sandbox {
  sqlite3 *db;
  int selects;          /* it is a SELECT */
  int declares;         /* a module declares its table: SQLite 3.40 tells of that as an UPDATE of the schema */
  sqlite3_str *reads;   /* what it reads, a JSON array that is not closed yet */
  Fault refusal;        /* what it may not do */
} Sandbox;

static int is_listed(const char *const *list, const char *name){
  for(; *list; list++){
    if( name && sqlite3_stricmp(*list, name)==0 ) return 1;
  }
  return 0;
}

static void append_json(sqlite3_str *list, const char *text){
  sqlite3_str_appendall(list, sqlite3_str_length(list) ? ",\"" : "[\"");
  for(; *text; text++){
    unsigned char each = (unsigned char)*text;
    if( each<' ' ){
      sqlite3_str_appendf(list, "\\u%04x", each);
    }else{
      if( each=='"' || each=='\\' ) sqlite3_str_appendchar(list, 1, '\\');
      sqlite3_str_appendchar(list, 1, *text);
    }
  }
  sqlite3_str_appendchar(list, 1, '"');
}

static int authorize(void *given, int action, const char *first, const char *second, const char *database,
                     const char *inside){
  Sandbox *sandbox = given;
  int declares = sandbox->declares;
  const char *open = inside ? " (inside " : "", *name = inside ? inside : "", *shut = inside ? ")" : "";
  sandbox->declares = action==SQLITE_UPDATE && first && sqlite3_stricmp(first, "sqlite_master")==0;
  switch( action ){
    case SQLITE_RECURSIVE:
      return SQLITE_OK;
    case SQLITE_UPDATE:
      /* A real one is no SELECT, and is refused for that. */
      if( sandbox->declares ) return SQLITE_OK;
      break;
    case SQLITE_SELECT:
      sandbox->selects = 1;
      return SQLITE_OK;
    case SQLITE_FUNCTION:
      if( is_listed(functions, second) ) return SQLITE_OK;
      fault_say(&sandbox->refusal, SQLITE_ERROR,
                "the query may not call %s()%s%s%s; use the functions of SQLite that only compute",
                second, open, name, shut);
      return SQLITE_DENY;
    case SQLITE_READ:
      if( declares && second && sqlite3_stricmp(second, "ROWID")==0 ) return SQLITE_OK;
      if( first && !is_listed(our_tables, first) && sqlite3_strnicmp(first, "sqlite_", 7)!=0
       && (database==0 || strcmp(database, "main")==0) ){
        append_json(sandbox->reads, first);
        return SQLITE_OK;
      }
      fault_say(&sandbox->refusal, SQLITE_ERROR,
                "the query may not read %s%s%s%s; read your own tables and views", first, open, name, shut);
      return SQLITE_DENY;
    case SQLITE_PRAGMA:
      if( is_listed(pragmas, first) && second==0 ) return SQLITE_OK;
      break;
    default:
      break;
  }
  fault_say(&sandbox->refusal, SQLITE_ERROR, "only one SELECT is allowed, not another statement; give one SELECT");
  return SQLITE_DENY;
}

/* Gives the first place in a text that is no space, semicolon or comment. */
static const char *behind_blank(const char *text){
  while( *text ){
    if( strchr(" \t\n\v\f\r;", *text) ){
      text++;
    }else if( text[0]=='-' && text[1]=='-' ){
      text += strcspn(text, "\n");
    }else if( text[0]=='/' && text[1]=='*' ){
      const char *end = strstr(text+2, "*/");
      text = end ? end+2 : text+strlen(text);
    }else{
      break;
    }
  }
  return text;
}

/* Refuses a statement that is no query by its first word: what it names may well be missing. */
static void judge_word(Sandbox *sandbox, const char *sql, Fault *fault){
  const char *first = behind_blank(sql);
  char *word = sqlite3_mprintf("%.*s", (int)strspn(first, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"), first);
  Query query;
  if( word==0 ) fault_of(fault, sandbox->db, SQLITE_NOMEM);
  query_open(&query, sandbox->db, SQL_other_statement, fault);
  query_text(&query, ":word", word);
  if( query_step(&query) ){
    fault_say(fault, SQLITE_ERROR, "only one SELECT is allowed, not %s; give one SELECT",
              sqlite3_column_text(query.stmt, 0));
  }
  query_close(&query);
  sqlite3_free(word);
}

/* Words what SQLite says of a query that it cannot prepare. */
static void say_unprepared(sqlite3 *db, char *words, Fault *fault){
  Query query;
  if( words==0 ) fault_of(fault, db, SQLITE_NOMEM);
  query_open(&query, db, SQL_query_fault, fault);
  query_text(&query, ":words", words);
  if( query_step(&query) ) fault_say(fault, SQLITE_ERROR, "%s", sqlite3_column_text(query.stmt, 0));
  query_close(&query);
  sqlite3_free(words);
}

/* Refuses what the authorizer lets pass: other statements, a second one, results whose columns have no name of their
** own, tables made by modules. */
static void judge(Sandbox *sandbox, sqlite3_stmt *stmt, const char *sql, const char *tail, Fault *fault){
  int each, other, columns = stmt ? sqlite3_column_count(stmt) : 0;
  if( stmt==0 && *behind_blank(sql)==0 ){
    fault_say(fault, SQLITE_ERROR, "the query is empty; give one SELECT");
  }else if( *behind_blank(tail) ){
    fault_say(fault, SQLITE_ERROR, "only one SELECT is allowed, not several statements; give one SELECT");
  }else if( !sandbox->selects || columns==0 || !sqlite3_stmt_readonly(stmt) || sqlite3_stmt_isexplain(stmt) ){
    fault_say(fault, SQLITE_ERROR, "only one SELECT is allowed, not another statement; give one SELECT");
  }
  for(each=0; each<columns && fault->code==SQLITE_OK; each++){
    const char *name = sqlite3_column_name(stmt, each);
    if( name==0 || *name==0 ){
      fault_say(fault, SQLITE_ERROR, "in the query's result a column has no name; name each column with AS");
    }
    for(other=0; other<each && fault->code==SQLITE_OK; other++){
      if( sqlite3_stricmp(name, sqlite3_column_name(stmt, other))==0 ){
        fault_say(fault, SQLITE_ERROR,
                  "in the query's result two columns are named \"%s\"; name each column with AS", name);
      }
    }
  }
}

/* Refuses tables that are not in the database but made by modules, such as those of the pragmas. */
static void judge_reads(Sandbox *sandbox, Fault *fault){
  sqlite3_str *allowed = sqlite3_str_new(sandbox->db);
  char *names, *others;
  Query query;
  int each;
  for(each=0; table_functions[each]; each++) append_json(allowed, table_functions[each]);
  sqlite3_str_appendchar(allowed, 1, ']');
  sqlite3_str_appendall(sandbox->reads, sqlite3_str_length(sandbox->reads) ? "]" : "[]");
  others = sqlite3_str_finish(allowed);
  names = sqlite3_str_finish(sandbox->reads);
  sandbox->reads = 0;
  if( names==0 || others==0 ) fault_of(fault, sandbox->db, SQLITE_NOMEM);
  query_open(&query, sandbox->db, SQL_unreadable, fault);
  query_text(&query, ":names", names);
  query_text(&query, ":allowed", others);
  if( query_step(&query) ){
    fault_say(fault, SQLITE_ERROR, "the query may not read %s; read your own tables and views",
              sqlite3_column_text(query.stmt, 0));
  }
  query_close(&query);
  sqlite3_free(names);
  sqlite3_free(others);
}

static int characters_of(const char *text){
  int count = 0;
  for(; *text; text++) count += (*text & 0xc0)!=0x80;
  return count;
}

/* A fault unless a text is one SELECT that only reads the user's own tables. */
static void check(sqlite3 *db, const char *sql, int bytes, Fault *fault){
  Sandbox sandbox = {db, 0, 0, 0, {SQLITE_OK, 0, 0}};
  sqlite3_stmt *stmt = 0;
  const char *tail = "";
  char *unprepared;
  int code;
  if( (int)strlen(sql)!=bytes ){
    fault_say(fault, SQLITE_ERROR, "the query holds a NUL character; take it out");
  }else if( characters_of(sql)>SANDBOX_MAX_SQL_CHARACTERS ){
    fault_say(fault, SQLITE_ERROR, "a query is text of at most %,d characters; shorten it", SANDBOX_MAX_SQL_CHARACTERS);
  }
  if( fault->code!=SQLITE_OK ) return;
  judge_word(&sandbox, sql, fault);
  if( fault->code!=SQLITE_OK ) return;
  sandbox.reads = sqlite3_str_new(db);
  sqlite3_limit(db, SQLITE_LIMIT_LENGTH, SANDBOX_MAX_VALUE_BYTES);
  /* Otherwise a misspelt "column" in double quotes is a constant text, and a model is trained on it. */
  sqlite3_db_config(db, SQLITE_DBCONFIG_DQS_DML, 0, (int*)0);
  sqlite3_set_authorizer(db, authorize, &sandbox);
  code = sqlite3_prepare_v2(db, sql, -1, &stmt, &tail);
  unprepared = code==SQLITE_ERROR || code==SQLITE_AUTH || code==SQLITE_TOOBIG ? sqlite3_mprintf("%s", sqlite3_errmsg(db)) : 0;
  if( code==SQLITE_OK ) judge(&sandbox, stmt, sql, tail, fault);
  sqlite3_finalize(stmt);
  sqlite3_set_authorizer(db, 0, 0);
  if( code==SQLITE_OK ){
    judge_reads(&sandbox, fault);
  }else if( sandbox.refusal.code!=SQLITE_OK ){
    fault_say(fault, sandbox.refusal.code, "%s", sandbox.refusal.words);
  }else if( code==SQLITE_ERROR || code==SQLITE_AUTH || code==SQLITE_TOOBIG ){
    say_unprepared(db, unprepared, fault);
    unprepared = 0;
  }else{
    fault_of(fault, db, code);
  }
  sqlite3_free(unprepared);
  sqlite3_free(sqlite3_str_finish(sandbox.reads));
  fault_clear(&sandbox.refusal);
}

/* Inside a transaction that is still open its tables are not there yet for our connection: what is missing is left for
** the job to find. */
static void forgive_missing(sqlite3 *db, Fault *fault){
  Fault asking = {SQLITE_OK, 0, 0};
  Query query;
  query_open(&query, db, SQL_is_missing, &asking);
  query_text(&query, ":words", fault->words);
  if( fault->code==SQLITE_ERROR && query_step(&query) && sqlite3_column_int(query.stmt, 0) ) fault_clear(fault);
  query_close(&query);
  fault_clear(&asking);
}

/* A fault when a query in the spec of a new job would be refused in the job. What is wrong with the spec itself is not
** told here. */
int check_queries(Surface *surface, const Submission *job, Fault *fault){
  int each;
  if( fault->code!=SQLITE_OK || sqlite3_value_type(job->kind)!=SQLITE_TEXT || job->spec==0
   || sqlite3_value_type(job->spec)!=SQLITE_TEXT ){
    return fault->code;
  }
  for(each=0; spec_queries[each].kind && fault->code==SQLITE_OK; each++){
    const char *kind = (const char*)sqlite3_value_text(job->kind);
    Query query;
    if( kind==0 || strcmp(kind, spec_queries[each].kind)!=0 ) continue;
    query_open(&query, surface->db, SQL_text_of_spec, fault);
    query_value(&query, ":spec", job->spec);
    query_text(&query, ":key", spec_queries[each].key);
    if( query_step(&query) ){
      sqlite3 *db = open_reader(surface->db, fault);
      if( db ){
        const char *sql = (const char*)sqlite3_column_text(query.stmt, 0);
        if( sql ){
          check(db, sql, sqlite3_column_bytes(query.stmt, 0), fault);
        }else{
          fault_of(fault, surface->db, SQLITE_NOMEM);
        }
        if( fault->code!=SQLITE_OK && !sqlite3_get_autocommit(surface->db) ) forgive_missing(db, fault);
        sqlite3_close(db);
      }
    }
    query_close(&query);
  }
  return fault->code;
}
