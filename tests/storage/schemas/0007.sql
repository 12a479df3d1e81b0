PRAGMA application_id = 1262699336;
BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0007');
CREATE TABLE artifact_chunks (
	artifact_id BIGINT NOT NULL, 
	generation BIGINT NOT NULL, 
	seq BIGINT NOT NULL, 
	size BIGINT NOT NULL, 
	location TEXT, 
	content BLOB, digest BLOB, 
	CONSTRAINT pk_artifact_chunks PRIMARY KEY (artifact_id, generation, seq), 
	CONSTRAINT ck_artifact_chunks_place CHECK ((content IS NULL) <> (location IS NULL)), 
	CONSTRAINT fk_artifact_chunks_artifacts FOREIGN KEY(artifact_id) REFERENCES artifacts (id)
);
INSERT INTO "artifact_chunks" VALUES(1,1,0,7,NULL,X'77656967687473',X'9A129038D9A00AED0CF6A7EA059CA50A813449061AB87848CF1A13EAFDF33B2C');
INSERT INTO "artifact_chunks" VALUES(2,1,0,9,NULL,X'736861726564204952',X'464788EC592EF750B57BF67A000CD5CE95C2BEF6850CA1E399B0D344FA75EB8E');
INSERT INTO "artifact_chunks" VALUES(3,1,0,8,NULL,X'6F626A6563742031',X'7591168325EE4E53348662E67DDFE78704595CDBEE277397AFD26FF6FA8A9554');
INSERT INTO "artifact_chunks" VALUES(4,1,0,0,NULL,X'',X'E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855');
CREATE TABLE artifacts (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	namespace_id BIGINT NOT NULL, 
	digest BLOB NOT NULL, 
	size BIGINT NOT NULL, 
	created_at BIGINT NOT NULL, 
	CONSTRAINT uq_artifacts_namespace_id_digest UNIQUE (namespace_id, digest), 
	CONSTRAINT ck_artifacts_size CHECK (size >= 0), 
	CONSTRAINT ck_artifacts_digest CHECK (length(digest) = 32), 
	CONSTRAINT fk_artifacts_namespaces FOREIGN KEY(namespace_id) REFERENCES namespaces (id)
);
INSERT INTO "artifacts" VALUES(1,1,X'9A129038D9A00AED0CF6A7EA059CA50A813449061AB87848CF1A13EAFDF33B2C',7,1750000000000000);
INSERT INTO "artifacts" VALUES(2,1,X'464788EC592EF750B57BF67A000CD5CE95C2BEF6850CA1E399B0D344FA75EB8E',9,1750000000000000);
INSERT INTO "artifacts" VALUES(3,1,X'7591168325EE4E53348662E67DDFE78704595CDBEE277397AFD26FF6FA8A9554',8,1750000000000000);
INSERT INTO "artifacts" VALUES(4,1,X'E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855',0,1750000000000000);
CREATE TABLE assertion_conflicts (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	namespace_id BIGINT NOT NULL, 
	epoch BIGINT NOT NULL, 
	source_digest BLOB NOT NULL, 
	actor TEXT NOT NULL, 
	kept BLOB NOT NULL, 
	offered BLOB NOT NULL, 
	created_at BIGINT NOT NULL, 
	CONSTRAINT uq_assertion_conflicts_namespace_id_epoch_source_digest_actor_offered UNIQUE (namespace_id, epoch, source_digest, actor, offered), 
	CONSTRAINT ck_assertion_conflicts_source_digest CHECK (length(source_digest) = 32), 
	CONSTRAINT ck_assertion_conflicts_kept CHECK (length(kept) = 32), 
	CONSTRAINT ck_assertion_conflicts_offered CHECK (length(offered) = 32), 
	CONSTRAINT fk_assertion_conflicts_namespaces FOREIGN KEY(namespace_id) REFERENCES namespaces (id)
);
INSERT INTO "assertion_conflicts" VALUES(1,1,1,X'41CF6794BA4200B839C53531555F0F3998DF4CBB01A4D5CB0B94E3CA5E23947D','local',X'44136FA355B3678A1146AD16F7E8649E94FB4FC21FE77E8310C060F61CAAFF8A',X'4F53CDA18C2BAA0C0354BB5F9A3ECBE5ED12AB4D8E11BA873C2F11161202B945',1750000000000000);
CREATE TABLE assertion_disputes (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	namespace_id BIGINT NOT NULL, 
	epoch BIGINT NOT NULL, 
	source_digest BLOB NOT NULL, 
	actor TEXT NOT NULL, 
	record_digest BLOB NOT NULL, 
	observed BLOB NOT NULL, 
	disputed_by TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	created_at BIGINT NOT NULL, 
	CONSTRAINT uq_assertion_disputes_namespace_id_epoch_source_digest_actor_record_digest UNIQUE (namespace_id, epoch, source_digest, actor, record_digest), 
	CONSTRAINT ck_assertion_disputes_source_digest CHECK (length(source_digest) = 32), 
	CONSTRAINT ck_assertion_disputes_record_digest CHECK (length(record_digest) = 32), 
	CONSTRAINT ck_assertion_disputes_observed CHECK (length(observed) = 32), 
	CONSTRAINT fk_assertion_disputes_namespaces FOREIGN KEY(namespace_id) REFERENCES namespaces (id)
);
INSERT INTO "assertion_disputes" VALUES(1,1,1,X'41CF6794BA4200B839C53531555F0F3998DF4CBB01A4D5CB0B94E3CA5E23947D','local',X'44136FA355B3678A1146AD16F7E8649E94FB4FC21FE77E8310C060F61CAAFF8A',X'604CEE807F644AF47487BF2BBAB442B94212AC5119F36F995F78E9E4694DAE8C','local','another program',1750000000000000);
CREATE TABLE assertion_usage (
	assertion_id BIGINT NOT NULL, 
	hits BIGINT NOT NULL, 
	last_used_at BIGINT NOT NULL, 
	CONSTRAINT pk_assertion_usage PRIMARY KEY (assertion_id), 
	CONSTRAINT fk_assertion_usage_assertions FOREIGN KEY(assertion_id) REFERENCES assertions (id)
);
INSERT INTO "assertion_usage" VALUES(1,1,1750000000000000);
CREATE TABLE assertions (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	namespace_id BIGINT NOT NULL, 
	epoch BIGINT NOT NULL, 
	source_digest BLOB NOT NULL, 
	actor TEXT NOT NULL, 
	role TEXT NOT NULL, 
	record_digest BLOB NOT NULL, 
	record_size BIGINT NOT NULL, 
	size BIGINT NOT NULL, 
	toolchain TEXT NOT NULL, 
	created_at BIGINT NOT NULL, 
	programs BLOB NOT NULL, 
	record BLOB NOT NULL, 
	CONSTRAINT uq_assertions_namespace_id_epoch_source_digest_actor UNIQUE (namespace_id, epoch, source_digest, actor), 
	CONSTRAINT ck_assertions_size CHECK (size >= 0), 
	CONSTRAINT ck_assertions_source_digest CHECK (length(source_digest) = 32), 
	CONSTRAINT ck_assertions_record_digest CHECK (length(record_digest) = 32), 
	CONSTRAINT fk_assertions_namespaces FOREIGN KEY(namespace_id) REFERENCES namespaces (id)
);
INSERT INTO "assertions" VALUES(1,1,1,X'41CF6794BA4200B839C53531555F0F3998DF4CBB01A4D5CB0B94E3CA5E23947D','local','ci',X'44136FA355B3678A1146AD16F7E8649E94FB4FC21FE77E8310C060F61CAAFF8A',2,44,'torch 2.13',1750000000000000,X'1310CA2C8932DBD118668BD97442558A3E1F546B5E15C69699DFBD6024F548D8',X'7B7D');
CREATE TABLE audit_checkpoints (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	writer TEXT NOT NULL, 
	sequence BIGINT NOT NULL, 
	root BLOB NOT NULL, 
	events BIGINT NOT NULL, 
	first_at BIGINT NOT NULL, 
	last_at BIGINT NOT NULL, 
	signature BLOB NOT NULL, 
	created_at BIGINT NOT NULL, 
	CONSTRAINT uq_audit_checkpoints_writer_sequence UNIQUE (writer, sequence), 
	CONSTRAINT ck_audit_checkpoints_root CHECK (length(root) = 32)
);
CREATE TABLE audit_days (
	namespace TEXT NOT NULL, 
	day BIGINT NOT NULL, 
	slot BIGINT NOT NULL, 
	served BIGINT NOT NULL, 
	saved_us BIGINT NOT NULL, 
	compiled BIGINT NOT NULL, 
	compile_us BIGINT NOT NULL, 
	CONSTRAINT pk_audit_days PRIMARY KEY (namespace, day, slot)
)
 WITHOUT ROWID

;
INSERT INTO "audit_days" VALUES('default',20254,0,0,0,1,0);
CREATE TABLE audit_events (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	namespace_id BIGINT NOT NULL, 
	epoch BIGINT NOT NULL, 
	at BIGINT NOT NULL, 
	writer TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	outcome TEXT NOT NULL, 
	origin TEXT NOT NULL, 
	actor TEXT NOT NULL, 
	peer TEXT NOT NULL, 
	request_id TEXT NOT NULL, 
	program_digest BLOB, 
	spec_digest BLOB, 
	"key" BIGINT, 
	kernel_digest BLOB, 
	target TEXT NOT NULL, 
	toolchain BLOB, 
	duration_us BIGINT NOT NULL, 
	byte_count BIGINT NOT NULL, 
	saved_us BIGINT NOT NULL, 
	detail TEXT NOT NULL
, job TEXT DEFAULT '' NOT NULL, request_count BIGINT DEFAULT '1' NOT NULL);
INSERT INTO "audit_events" VALUES(1,1,1,1750000000000000,'29598-c9aa27d735dbec35','store','','','job','','',NULL,NULL,1,NULL,'',NULL,0,0,0,'','',1);
INSERT INTO "audit_events" VALUES(2,1,1,1750000000000000,'29598-c9aa27d735dbec35','publish','','','','','',NULL,NULL,1,NULL,'',NULL,0,0,0,'','',1);
CREATE TABLE audit_misses (
	namespace TEXT NOT NULL, 
	program_digest BLOB NOT NULL, 
	target TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	"key" BIGINT, 
	misses BIGINT NOT NULL, 
	first_at BIGINT NOT NULL, 
	last_at BIGINT NOT NULL, 
	last_actor TEXT NOT NULL, 
	last_job TEXT NOT NULL, 
	CONSTRAINT pk_audit_misses PRIMARY KEY (namespace, program_digest, target, reason)
)
 WITHOUT ROWID

;
CREATE TABLE audit_seals (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	writer TEXT NOT NULL, 
	sequence BIGINT NOT NULL, 
	previous_root BLOB NOT NULL, 
	root BLOB NOT NULL, 
	event_ids BLOB NOT NULL, 
	signature BLOB NOT NULL, 
	created_at BIGINT NOT NULL, leaf_marks BLOB, 
	CONSTRAINT uq_audit_seals_writer_sequence UNIQUE (writer, sequence), 
	CONSTRAINT ck_audit_seals_previous_root CHECK (length(previous_root) = 32), 
	CONSTRAINT ck_audit_seals_root CHECK (length(root) = 32)
);
CREATE TABLE audit_writers (
	writer TEXT NOT NULL, 
	public_key BLOB NOT NULL, 
	host TEXT NOT NULL, 
	started_at BIGINT NOT NULL, 
	CONSTRAINT pk_audit_writers PRIMARY KEY (writer)
);
CREATE TABLE autotune_timings (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	namespace_id BIGINT NOT NULL, 
	kernel_digest BLOB NOT NULL, 
	shape TEXT NOT NULL, 
	config TEXT NOT NULL, 
	device TEXT NOT NULL, 
	nanoseconds BIGINT NOT NULL, 
	samples BIGINT DEFAULT '1' NOT NULL, 
	created_at BIGINT NOT NULL, 
	CONSTRAINT uq_autotune_timings_namespace_id_kernel_digest_shape_config_device UNIQUE (namespace_id, kernel_digest, shape, config, device), 
	CONSTRAINT ck_autotune_timings_kernel_digest CHECK (length(kernel_digest) = 32), 
	CONSTRAINT fk_autotune_timings_namespaces FOREIGN KEY(namespace_id) REFERENCES namespaces (id)
);
CREATE TABLE cache_chunks (
	value_id BIGINT NOT NULL, 
	seq BIGINT NOT NULL, 
	digest BLOB NOT NULL, 
	content BLOB NOT NULL, 
	CONSTRAINT pk_cache_chunks PRIMARY KEY (value_id, seq), 
	CONSTRAINT ck_cache_chunks_digest CHECK (length(digest) = 32), 
	CONSTRAINT fk_cache_chunks_cache_values FOREIGN KEY(value_id) REFERENCES cache_values (id)
);
INSERT INTO "cache_chunks" VALUES(1,0,X'CD42404D52AD55CCFA9ACA4ADC828AA5800AD9D385A0671FBCBF724118320619',X'76616C7565');
CREATE TABLE cache_conflicts (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	namespace_id BIGINT NOT NULL, 
	"key" BLOB NOT NULL, 
	kept BLOB NOT NULL, 
	offered BLOB NOT NULL, 
	actor TEXT NOT NULL, 
	created_at BIGINT NOT NULL, 
	CONSTRAINT uq_cache_conflicts_namespace_id_key_offered UNIQUE (namespace_id, "key", offered), 
	CONSTRAINT ck_cache_conflicts_key CHECK (length(key) = 32), 
	CONSTRAINT ck_cache_conflicts_kept CHECK (length(kept) = 32), 
	CONSTRAINT ck_cache_conflicts_offered CHECK (length(offered) = 32), 
	CONSTRAINT fk_cache_conflicts_namespaces FOREIGN KEY(namespace_id) REFERENCES namespaces (id)
);
CREATE TABLE cache_totals (
	namespace_id BIGINT NOT NULL, 
	hits BIGINT NOT NULL, 
	saved_us BIGINT NOT NULL, 
	CONSTRAINT pk_cache_totals PRIMARY KEY (namespace_id), 
	CONSTRAINT fk_cache_totals_namespaces FOREIGN KEY(namespace_id) REFERENCES namespaces (id)
);
CREATE TABLE cache_usage (
	value_id BIGINT NOT NULL, 
	hits BIGINT NOT NULL, 
	last_used_at BIGINT NOT NULL, 
	CONSTRAINT pk_cache_usage PRIMARY KEY (value_id), 
	CONSTRAINT fk_cache_usage_cache_values FOREIGN KEY(value_id) REFERENCES cache_values (id)
);
CREATE TABLE cache_values (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	namespace_id BIGINT NOT NULL, 
	"key" BLOB NOT NULL, 
	digest BLOB NOT NULL, 
	size BIGINT NOT NULL, 
	label TEXT NOT NULL, 
	saved_us BIGINT NOT NULL, 
	created_at BIGINT NOT NULL, 
	CONSTRAINT uq_cache_values_namespace_id_key UNIQUE (namespace_id, "key"), 
	CONSTRAINT ck_cache_values_size CHECK (size >= 0), 
	CONSTRAINT ck_cache_values_key CHECK (length(key) = 32), 
	CONSTRAINT ck_cache_values_digest CHECK (length(digest) = 32), 
	CONSTRAINT fk_cache_values_namespaces FOREIGN KEY(namespace_id) REFERENCES namespaces (id)
);
INSERT INTO "cache_values" VALUES(1,1,X'2C70E12B7A0646F92279F427C7B38E7334D8E5389CFF167A1DC30E73F826B683',X'CD42404D52AD55CCFA9ACA4ADC828AA5800AD9D385A0671FBCBF724118320619',5,'key',7,1750000000000000);
CREATE TABLE conflicts (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	namespace_id BIGINT NOT NULL, 
	kind TEXT NOT NULL, 
	name BLOB NOT NULL, 
	stored BLOB NOT NULL, 
	offered BLOB NOT NULL, 
	created_at BIGINT NOT NULL, 
	CONSTRAINT fk_conflicts_namespaces FOREIGN KEY(namespace_id) REFERENCES namespaces (id)
);
CREATE TABLE constants (
	namespace_id BIGINT NOT NULL, 
	digest BLOB NOT NULL, 
	artifact_id BIGINT NOT NULL, 
	created_at BIGINT NOT NULL, 
	CONSTRAINT pk_constants PRIMARY KEY (namespace_id, digest), 
	CONSTRAINT fk_constants_namespaces FOREIGN KEY(namespace_id) REFERENCES namespaces (id), 
	CONSTRAINT fk_constants_artifacts FOREIGN KEY(artifact_id) REFERENCES artifacts (id)
);
INSERT INTO "constants" VALUES(1,X'9A129038D9A00AED0CF6A7EA059CA50A813449061AB87848CF1A13EAFDF33B2C',1,1750000000000000);
CREATE TABLE dead_objects (
	location TEXT NOT NULL, 
	size BIGINT NOT NULL, 
	dead_at BIGINT NOT NULL, 
	CONSTRAINT pk_dead_objects PRIMARY KEY (location)
);
CREATE TABLE disowned_toolchains (
	namespace_id BIGINT NOT NULL, 
	toolchain BLOB NOT NULL, 
	reason TEXT NOT NULL, 
	created_at BIGINT NOT NULL, 
	CONSTRAINT pk_disowned_toolchains PRIMARY KEY (namespace_id, toolchain), 
	CONSTRAINT ck_disowned_toolchains_toolchain CHECK (length(toolchain) = 32), 
	CONSTRAINT fk_disowned_toolchains_namespaces FOREIGN KEY(namespace_id) REFERENCES namespaces (id)
);
CREATE TABLE failures (
	namespace_id BIGINT NOT NULL, 
	epoch BIGINT NOT NULL, 
	kernel_digest BLOB NOT NULL, 
	reason TEXT NOT NULL, 
	stage TEXT NOT NULL, 
	diagnostic TEXT NOT NULL, 
	detail TEXT NOT NULL, 
	count BIGINT NOT NULL, 
	first_at BIGINT NOT NULL, 
	last_at BIGINT NOT NULL, 
	expires_at BIGINT NOT NULL, 
	CONSTRAINT pk_failures PRIMARY KEY (namespace_id, epoch, kernel_digest), 
	CONSTRAINT ck_failures_kernel_digest CHECK (length(kernel_digest) = 32), 
	CONSTRAINT fk_failures_namespaces FOREIGN KEY(namespace_id) REFERENCES namespaces (id)
);
INSERT INTO "failures" VALUES(1,1,X'E46D100FEB32A5C0AB5ED2F0D1B51AF67F32BB9CF3280ABE5F9E190B62C714D6','COMPILE_FAILED','lower','no','[]',1,1750000000000000,1750000000000000,1750000060000000);
CREATE TABLE gc_permits (
	id INTEGER NOT NULL, 
	reason TEXT NOT NULL, 
	created_at BIGINT NOT NULL, 
	CONSTRAINT pk_gc_permits PRIMARY KEY (id)
);
CREATE TABLE graph_mappings (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	namespace_id BIGINT NOT NULL, 
	epoch BIGINT NOT NULL, 
	program_digest BLOB NOT NULL, 
	numerics TEXT NOT NULL, 
	"key" BIGINT NOT NULL, 
	created_at BIGINT NOT NULL, 
	binding BLOB NOT NULL, 
	signature BLOB NOT NULL, 
	CONSTRAINT uq_graph_mappings_namespace_id_epoch_program_digest_numerics UNIQUE (namespace_id, epoch, program_digest, numerics), 
	CONSTRAINT fk_graph_mappings_specs FOREIGN KEY(namespace_id, "key") REFERENCES specs (namespace_id, "key"), 
	CONSTRAINT ck_graph_mappings_program_digest CHECK (length(program_digest) = 32), 
	CONSTRAINT fk_graph_mappings_namespaces FOREIGN KEY(namespace_id) REFERENCES namespaces (id)
);
INSERT INTO "graph_mappings" VALUES(1,1,1,X'0412ABCCF010A11CBF602F8CF3813FF35CCAECD9F17A503BC99216FB3616F0AE','default',1,1750000000000000,X'62696E64696E67206F662031',X'7369676E6174757265206F66206974');
INSERT INTO "graph_mappings" VALUES(2,1,1,X'200C57D749C928F462A4302760B2E29B02548946E46BE191CB8C5682A5D0E3CB','default',2,1750000000000000,X'62696E64696E67206F662032',X'7369676E6174757265206F66206974');
CREATE TABLE kernel_artifacts (
	kernel_id BIGINT NOT NULL, 
	position BIGINT NOT NULL, 
	kind TEXT NOT NULL, 
	artifact_id BIGINT NOT NULL, 
	CONSTRAINT pk_kernel_artifacts PRIMARY KEY (kernel_id, position), 
	CONSTRAINT uq_kernel_artifacts_kernel_id_kind UNIQUE (kernel_id, kind), 
	CONSTRAINT fk_kernel_artifacts_kernels FOREIGN KEY(kernel_id) REFERENCES kernels (id), 
	CONSTRAINT fk_kernel_artifacts_artifacts FOREIGN KEY(artifact_id) REFERENCES artifacts (id)
);
INSERT INTO "kernel_artifacts" VALUES(1,0,'so',3);
INSERT INTO "kernel_artifacts" VALUES(1,1,'llvm',2);
INSERT INTO "kernel_artifacts" VALUES(1,2,'asm',4);
CREATE TABLE kernel_ingredients (
	kernel_id BIGINT NOT NULL, 
	position BIGINT NOT NULL, 
	name TEXT NOT NULL, 
	value TEXT NOT NULL, 
	CONSTRAINT pk_kernel_ingredients PRIMARY KEY (kernel_id, position), 
	CONSTRAINT fk_kernel_ingredients_kernels FOREIGN KEY(kernel_id) REFERENCES kernels (id)
);
INSERT INTO "kernel_ingredients" VALUES(1,0,'spec','c4a80f5c16e4df4f690b625db8a3df47837f61244579c9cb08edb9d1bc53693b');
INSERT INTO "kernel_ingredients" VALUES(1,1,'target','x86-64-v3');
CREATE TABLE kernels (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	namespace_id BIGINT NOT NULL, 
	epoch BIGINT NOT NULL, 
	kernel_digest BLOB NOT NULL, 
	"key" BIGINT NOT NULL, 
	target TEXT NOT NULL, 
	options TEXT NOT NULL, 
	toolchain BLOB NOT NULL, 
	compile_us BIGINT NOT NULL, 
	fencing_token BIGINT NOT NULL, 
	created_at BIGINT NOT NULL, 
	arg_spec TEXT NOT NULL, 
	guard TEXT NOT NULL, 
	manifest BLOB NOT NULL, 
	signature BLOB NOT NULL, 
	CONSTRAINT uq_kernels_namespace_id_epoch_kernel_digest UNIQUE (namespace_id, epoch, kernel_digest), 
	CONSTRAINT fk_kernels_specs FOREIGN KEY(namespace_id, "key") REFERENCES specs (namespace_id, "key"), 
	CONSTRAINT ck_kernels_kernel_digest CHECK (length(kernel_digest) = 32), 
	CONSTRAINT ck_kernels_toolchain CHECK (length(toolchain) = 32), 
	CONSTRAINT fk_kernels_namespaces FOREIGN KEY(namespace_id) REFERENCES namespaces (id)
);
INSERT INTO "kernels" VALUES(1,1,1,X'7633FF3BF7B49E3D613EFE233691EF7D21136E0EFF72BBC6938E11938E2FDDE5',1,'x86-64-v3','numerics=default',X'0DB3DE82A739E43A2B560D166D037C3C0061601BB194866EB79B2C87045D00F2',1501,0,1750000000000000,'f32[8]','',X'6D616E69666573742031',X'7369676E6174757265206F66206974');
CREATE TABLE key_aliases (
	namespace_id BIGINT NOT NULL, 
	alias BIGINT NOT NULL, 
	"key" BIGINT NOT NULL, 
	created_at BIGINT NOT NULL, 
	CONSTRAINT pk_key_aliases PRIMARY KEY (namespace_id, alias), 
	CONSTRAINT fk_aliases_key FOREIGN KEY(namespace_id, "key") REFERENCES specs (namespace_id, "key"), 
	CONSTRAINT fk_aliases_alias FOREIGN KEY(namespace_id, alias) REFERENCES specs (namespace_id, "key"), 
	CONSTRAINT ck_key_aliases_order CHECK (key < alias), 
	CONSTRAINT fk_key_aliases_namespaces FOREIGN KEY(namespace_id) REFERENCES namespaces (id)
);
CREATE TABLE key_counters (
	namespace_id BIGINT NOT NULL, 
	last_key BIGINT DEFAULT '0' NOT NULL, 
	CONSTRAINT pk_key_counters PRIMARY KEY (namespace_id), 
	CONSTRAINT ck_key_counters_last_key CHECK (last_key >= 0), 
	CONSTRAINT fk_key_counters_namespaces FOREIGN KEY(namespace_id) REFERENCES namespaces (id)
);
INSERT INTO "key_counters" VALUES(1,2);
INSERT INTO "key_counters" VALUES(2,0);
CREATE TABLE leases (
	namespace_id BIGINT NOT NULL, 
	epoch BIGINT NOT NULL, 
	kernel_digest BLOB NOT NULL, 
	holder TEXT NOT NULL, 
	fencing_token BIGINT NOT NULL, 
	boot TEXT NOT NULL, 
	renewed_at BIGINT NOT NULL, 
	expires_at BIGINT NOT NULL, 
	acquired_at BIGINT NOT NULL, 
	stages TEXT NOT NULL, 
	CONSTRAINT pk_leases PRIMARY KEY (namespace_id, epoch, kernel_digest), 
	CONSTRAINT ck_leases_kernel_digest CHECK (length(kernel_digest) = 32), 
	CONSTRAINT fk_leases_namespaces FOREIGN KEY(namespace_id) REFERENCES namespaces (id)
);
INSERT INTO "leases" VALUES(1,1,X'BF50A7B8252DCAA7FE52C64449E06432DE433AD1301F3B29C2998120ACBD9485','holder',1,'boot-1',77000000,87000000,1750000000000000,'');
CREATE TABLE mapping_constants (
	mapping_id BIGINT NOT NULL, 
	position BIGINT NOT NULL, 
	namespace_id BIGINT NOT NULL, 
	digest BLOB NOT NULL, 
	CONSTRAINT pk_mapping_constants PRIMARY KEY (mapping_id, position), 
	CONSTRAINT fk_mapping_constants_constants FOREIGN KEY(namespace_id, digest) REFERENCES constants (namespace_id, digest), 
	CONSTRAINT fk_mapping_constants_graph_mappings FOREIGN KEY(mapping_id) REFERENCES graph_mappings (id), 
	CONSTRAINT fk_mapping_constants_namespaces FOREIGN KEY(namespace_id) REFERENCES namespaces (id)
);
INSERT INTO "mapping_constants" VALUES(1,0,1,X'9A129038D9A00AED0CF6A7EA059CA50A813449061AB87848CF1A13EAFDF33B2C');
CREATE TABLE namespaces (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	name TEXT NOT NULL, 
	epoch BIGINT DEFAULT '1' NOT NULL, 
	created_at BIGINT NOT NULL, removals BIGINT DEFAULT '0' NOT NULL, 
	CONSTRAINT uq_namespaces_name UNIQUE (name), 
	CONSTRAINT ck_namespaces_epoch CHECK (epoch >= 1)
);
INSERT INTO "namespaces" VALUES(1,'default',1,1750000000000000,0);
INSERT INTO "namespaces" VALUES(2,'other',2,1750000000000000,0);
CREATE TABLE pins (
	namespace_id BIGINT NOT NULL, 
	subject TEXT NOT NULL, 
	digest BLOB NOT NULL, 
	reason TEXT NOT NULL, 
	created_at BIGINT NOT NULL, 
	CONSTRAINT pk_pins PRIMARY KEY (namespace_id, subject, digest), 
	CONSTRAINT ck_pins_digest CHECK (length(digest) = 32), 
	CONSTRAINT fk_pins_namespaces FOREIGN KEY(namespace_id) REFERENCES namespaces (id)
);
CREATE TABLE programs (
	namespace_id BIGINT NOT NULL, 
	program_digest BLOB NOT NULL, 
	format TEXT NOT NULL, 
	artifact_id BIGINT NOT NULL, 
	created_at BIGINT NOT NULL, 
	CONSTRAINT pk_programs PRIMARY KEY (namespace_id, program_digest), 
	CONSTRAINT ck_programs_program_digest CHECK (length(program_digest) = 32), 
	CONSTRAINT fk_programs_namespaces FOREIGN KEY(namespace_id) REFERENCES namespaces (id), 
	CONSTRAINT fk_programs_artifacts FOREIGN KEY(artifact_id) REFERENCES artifacts (id)
);
CREATE TABLE quarantine (
	artifact_id BIGINT NOT NULL, 
	generation BIGINT NOT NULL, 
	reason TEXT NOT NULL, 
	created_at BIGINT NOT NULL, 
	CONSTRAINT pk_quarantine PRIMARY KEY (artifact_id, generation), 
	CONSTRAINT fk_quarantine_artifacts FOREIGN KEY(artifact_id) REFERENCES artifacts (id)
);
CREATE TABLE quarantined_blobs (
	row_id BIGINT NOT NULL, 
	artifact_id BIGINT NOT NULL, 
	CONSTRAINT pk_quarantined_blobs PRIMARY KEY (row_id, artifact_id), 
	CONSTRAINT fk_quarantined_blobs_quarantined_rows FOREIGN KEY(row_id) REFERENCES quarantined_rows (id), 
	CONSTRAINT fk_quarantined_blobs_artifacts FOREIGN KEY(artifact_id) REFERENCES artifacts (id)
);
CREATE TABLE quarantined_rows (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	namespace_id BIGINT NOT NULL, 
	subject TEXT NOT NULL, 
	digest BLOB NOT NULL, 
	problem TEXT NOT NULL, 
	created_at BIGINT NOT NULL, 
	content TEXT NOT NULL, 
	CONSTRAINT ck_quarantined_rows_digest CHECK (length(digest) = 32), 
	CONSTRAINT fk_quarantined_rows_namespaces FOREIGN KEY(namespace_id) REFERENCES namespaces (id)
);
CREATE TABLE quotas (
	namespace_id BIGINT NOT NULL, 
	resource TEXT NOT NULL, 
	most BIGINT NOT NULL, 
	updated_at BIGINT NOT NULL, 
	policy TEXT DEFAULT 'evict' NOT NULL, 
	used BIGINT DEFAULT '0' NOT NULL, 
	CONSTRAINT pk_quotas PRIMARY KEY (namespace_id, resource), 
	CONSTRAINT ck_quotas_most CHECK (most >= 0), 
	CONSTRAINT fk_quotas_namespaces FOREIGN KEY(namespace_id) REFERENCES namespaces (id)
);
CREATE TABLE specs (
	namespace_id BIGINT NOT NULL, 
	"key" BIGINT NOT NULL, 
	spec_digest BLOB NOT NULL, 
	numerics TEXT NOT NULL, 
	canonicalizer BIGINT NOT NULL, 
	family TEXT NOT NULL, 
	text_size BIGINT NOT NULL, 
	created_at BIGINT NOT NULL, 
	text TEXT NOT NULL, 
	CONSTRAINT pk_specs PRIMARY KEY (namespace_id, "key"), 
	CONSTRAINT uq_specs_namespace_id_spec_digest UNIQUE (namespace_id, spec_digest), 
	CONSTRAINT ck_specs_key CHECK (key >= 1), 
	CONSTRAINT ck_specs_spec_digest CHECK (length(spec_digest) = 32), 
	CONSTRAINT fk_specs_namespaces FOREIGN KEY(namespace_id) REFERENCES namespaces (id)
);
INSERT INTO "specs" VALUES(1,1,X'6A98B88B24185BAB6CE55840709C619CC109E15F79A47B2D7AB455FF565CCF5A','default',1,'stablehlo',37,1750000000000000,'kcache.spec v1 default
%0 = add arg0
');
INSERT INTO "specs" VALUES(1,2,X'C4A80F5C16E4DF4F690B625DB8A3DF47837F61244579C9CB08EDB9D1BC53693B','default',1,'stablehlo',37,1750000000000000,'kcache.spec v1 default
%0 = add arg1
');
CREATE TABLE store_meta (
	name TEXT NOT NULL, 
	value TEXT NOT NULL, 
	CONSTRAINT pk_store_meta PRIMARY KEY (name)
);
INSERT INTO "store_meta" VALUES('store_id','6048cb8a6e4a8e550af4e2e030690288');
INSERT INTO "store_meta" VALUES('trusted_roles/default','["ci"]');
CREATE TABLE transfers (
	source_id TEXT NOT NULL, 
	table_name TEXT NOT NULL, 
	position TEXT NOT NULL, 
	row_count BIGINT NOT NULL, 
	finished_at BIGINT DEFAULT '0' NOT NULL, 
	updated_at BIGINT NOT NULL, 
	CONSTRAINT pk_transfers PRIMARY KEY (source_id, table_name)
);
CREATE TABLE usage (
	namespace_id BIGINT NOT NULL, 
	subject TEXT NOT NULL, 
	digest BLOB NOT NULL, 
	hits BIGINT NOT NULL, 
	saved_us BIGINT NOT NULL, 
	last_used_at BIGINT NOT NULL, 
	CONSTRAINT pk_usage PRIMARY KEY (namespace_id, subject, digest), 
	CONSTRAINT ck_usage_digest CHECK (length(digest) = 32), 
	CONSTRAINT fk_usage_namespaces FOREIGN KEY(namespace_id) REFERENCES namespaces (id)
)
 WITHOUT ROWID

;
INSERT INTO "usage" VALUES(1,'kernel',X'7633FF3BF7B49E3D613EFE233691EF7D21136E0EFF72BBC6938E11938E2FDDE5',3,4500,1750000000000000);
INSERT INTO "usage" VALUES(1,'mapping',X'0412ABCCF010A11CBF602F8CF3813FF35CCAECD9F17A503BC99216FB3616F0AE',0,0,1750000000000000);
INSERT INTO "usage" VALUES(1,'mapping',X'200C57D749C928F462A4302760B2E29B02548946E46BE191CB8C5682A5D0E3CB',0,0,1750000000000000);
CREATE INDEX ix_artifact_chunks_whole ON artifact_chunks (artifact_id, generation, size);
CREATE INDEX ix_programs_artifact_id ON programs (artifact_id);
CREATE INDEX ix_constants_artifact_id ON constants (artifact_id);
CREATE INDEX ix_graph_mappings_key ON graph_mappings (namespace_id, "key");
CREATE INDEX ix_mapping_constants_digest ON mapping_constants (namespace_id, digest);
CREATE INDEX ix_kernels_compile_us ON kernels (namespace_id, epoch, compile_us);
CREATE INDEX ix_kernels_variants ON kernels (namespace_id, epoch, "key", target, options, toolchain);
CREATE INDEX ix_kernel_artifacts_artifact_id ON kernel_artifacts (artifact_id);
CREATE INDEX ix_conflicts_namespace_id ON conflicts (namespace_id, id);
CREATE INDEX ix_audit_events_at ON audit_events (namespace_id, at);
CREATE INDEX ix_audit_events_writer ON audit_events (writer, id);
CREATE INDEX ix_audit_events_namespace_id ON audit_events (namespace_id, id);
CREATE TRIGGER specs_refuse_update BEFORE UPDATE ON specs BEGIN SELECT RAISE(ABORT, 'kcache: rows of specs are never changed'); END;
CREATE TRIGGER specs_refuse_delete BEFORE DELETE ON specs BEGIN SELECT RAISE(ABORT, 'kcache: rows of specs are never deleted'); END;
CREATE TRIGGER specs_refuse_insert BEFORE INSERT ON specs WHEN EXISTS (SELECT 1 FROM specs WHERE rowid = NEW.rowid) OR EXISTS (SELECT 1 FROM specs WHERE namespace_id = NEW.namespace_id AND key = NEW.key) OR EXISTS (SELECT 1 FROM specs WHERE namespace_id = NEW.namespace_id AND spec_digest = NEW.spec_digest) BEGIN SELECT RAISE(ABORT, 'kcache: rows of specs are never replaced'); END;
CREATE TRIGGER key_aliases_refuse_update BEFORE UPDATE ON key_aliases BEGIN SELECT RAISE(ABORT, 'kcache: rows of key_aliases are never changed'); END;
CREATE TRIGGER key_aliases_refuse_delete BEFORE DELETE ON key_aliases BEGIN SELECT RAISE(ABORT, 'kcache: rows of key_aliases are never deleted'); END;
CREATE TRIGGER key_aliases_refuse_insert BEFORE INSERT ON key_aliases WHEN EXISTS (SELECT 1 FROM key_aliases WHERE rowid = NEW.rowid) OR EXISTS (SELECT 1 FROM key_aliases WHERE namespace_id = NEW.namespace_id AND alias = NEW.alias) BEGIN SELECT RAISE(ABORT, 'kcache: rows of key_aliases are never replaced'); END;
CREATE TRIGGER programs_refuse_update BEFORE UPDATE ON programs BEGIN SELECT RAISE(ABORT, 'kcache: rows of programs are never changed'); END;
CREATE TRIGGER programs_refuse_delete BEFORE DELETE ON programs WHEN NOT EXISTS (SELECT 1 FROM gc_permits) BEGIN SELECT RAISE(ABORT, 'kcache: rows of programs are never deleted'); END;
CREATE TRIGGER programs_refuse_insert BEFORE INSERT ON programs WHEN EXISTS (SELECT 1 FROM programs WHERE rowid = NEW.rowid) OR EXISTS (SELECT 1 FROM programs WHERE namespace_id = NEW.namespace_id AND program_digest = NEW.program_digest) BEGIN SELECT RAISE(ABORT, 'kcache: rows of programs are never replaced'); END;
CREATE TRIGGER constants_refuse_update BEFORE UPDATE ON constants BEGIN SELECT RAISE(ABORT, 'kcache: rows of constants are never changed'); END;
CREATE TRIGGER constants_refuse_delete BEFORE DELETE ON constants WHEN NOT EXISTS (SELECT 1 FROM gc_permits) BEGIN SELECT RAISE(ABORT, 'kcache: rows of constants are never deleted'); END;
CREATE TRIGGER constants_refuse_insert BEFORE INSERT ON constants WHEN EXISTS (SELECT 1 FROM constants WHERE rowid = NEW.rowid) OR EXISTS (SELECT 1 FROM constants WHERE namespace_id = NEW.namespace_id AND digest = NEW.digest) BEGIN SELECT RAISE(ABORT, 'kcache: rows of constants are never replaced'); END;
CREATE TRIGGER graph_mappings_refuse_update BEFORE UPDATE ON graph_mappings BEGIN SELECT RAISE(ABORT, 'kcache: rows of graph_mappings are never changed'); END;
CREATE TRIGGER graph_mappings_refuse_delete BEFORE DELETE ON graph_mappings WHEN NOT EXISTS (SELECT 1 FROM gc_permits) BEGIN SELECT RAISE(ABORT, 'kcache: rows of graph_mappings are never deleted'); END;
CREATE TRIGGER graph_mappings_refuse_insert BEFORE INSERT ON graph_mappings WHEN EXISTS (SELECT 1 FROM graph_mappings WHERE rowid = NEW.rowid) OR EXISTS (SELECT 1 FROM graph_mappings WHERE namespace_id = NEW.namespace_id AND epoch = NEW.epoch AND program_digest = NEW.program_digest AND numerics = NEW.numerics) BEGIN SELECT RAISE(ABORT, 'kcache: rows of graph_mappings are never replaced'); END;
CREATE TRIGGER mapping_constants_refuse_update BEFORE UPDATE ON mapping_constants BEGIN SELECT RAISE(ABORT, 'kcache: rows of mapping_constants are never changed'); END;
CREATE TRIGGER mapping_constants_refuse_delete BEFORE DELETE ON mapping_constants WHEN NOT EXISTS (SELECT 1 FROM gc_permits) BEGIN SELECT RAISE(ABORT, 'kcache: rows of mapping_constants are never deleted'); END;
CREATE TRIGGER mapping_constants_refuse_insert BEFORE INSERT ON mapping_constants WHEN EXISTS (SELECT 1 FROM mapping_constants WHERE rowid = NEW.rowid) OR EXISTS (SELECT 1 FROM mapping_constants WHERE mapping_id = NEW.mapping_id AND position = NEW.position) BEGIN SELECT RAISE(ABORT, 'kcache: rows of mapping_constants are never replaced'); END;
CREATE TRIGGER kernels_refuse_update BEFORE UPDATE ON kernels BEGIN SELECT RAISE(ABORT, 'kcache: rows of kernels are never changed'); END;
CREATE TRIGGER kernels_refuse_delete BEFORE DELETE ON kernels WHEN NOT EXISTS (SELECT 1 FROM gc_permits) BEGIN SELECT RAISE(ABORT, 'kcache: rows of kernels are never deleted'); END;
CREATE TRIGGER kernels_refuse_insert BEFORE INSERT ON kernels WHEN EXISTS (SELECT 1 FROM kernels WHERE rowid = NEW.rowid) OR EXISTS (SELECT 1 FROM kernels WHERE namespace_id = NEW.namespace_id AND epoch = NEW.epoch AND kernel_digest = NEW.kernel_digest) BEGIN SELECT RAISE(ABORT, 'kcache: rows of kernels are never replaced'); END;
CREATE TRIGGER kernel_ingredients_refuse_update BEFORE UPDATE ON kernel_ingredients BEGIN SELECT RAISE(ABORT, 'kcache: rows of kernel_ingredients are never changed'); END;
CREATE TRIGGER kernel_ingredients_refuse_delete BEFORE DELETE ON kernel_ingredients WHEN NOT EXISTS (SELECT 1 FROM gc_permits) BEGIN SELECT RAISE(ABORT, 'kcache: rows of kernel_ingredients are never deleted'); END;
CREATE TRIGGER kernel_ingredients_refuse_insert BEFORE INSERT ON kernel_ingredients WHEN EXISTS (SELECT 1 FROM kernel_ingredients WHERE rowid = NEW.rowid) OR EXISTS (SELECT 1 FROM kernel_ingredients WHERE kernel_id = NEW.kernel_id AND position = NEW.position) BEGIN SELECT RAISE(ABORT, 'kcache: rows of kernel_ingredients are never replaced'); END;
CREATE TRIGGER kernel_artifacts_refuse_update BEFORE UPDATE ON kernel_artifacts BEGIN SELECT RAISE(ABORT, 'kcache: rows of kernel_artifacts are never changed'); END;
CREATE TRIGGER kernel_artifacts_refuse_delete BEFORE DELETE ON kernel_artifacts WHEN NOT EXISTS (SELECT 1 FROM gc_permits) BEGIN SELECT RAISE(ABORT, 'kcache: rows of kernel_artifacts are never deleted'); END;
CREATE TRIGGER kernel_artifacts_refuse_insert BEFORE INSERT ON kernel_artifacts WHEN EXISTS (SELECT 1 FROM kernel_artifacts WHERE rowid = NEW.rowid) OR EXISTS (SELECT 1 FROM kernel_artifacts WHERE kernel_id = NEW.kernel_id AND position = NEW.position) OR EXISTS (SELECT 1 FROM kernel_artifacts WHERE kernel_id = NEW.kernel_id AND kind = NEW.kind) BEGIN SELECT RAISE(ABORT, 'kcache: rows of kernel_artifacts are never replaced'); END;
CREATE TRIGGER artifacts_refuse_update BEFORE UPDATE ON artifacts BEGIN SELECT RAISE(ABORT, 'kcache: rows of artifacts are never changed'); END;
CREATE TRIGGER artifacts_refuse_delete BEFORE DELETE ON artifacts WHEN NOT EXISTS (SELECT 1 FROM gc_permits) BEGIN SELECT RAISE(ABORT, 'kcache: rows of artifacts are never deleted'); END;
CREATE TRIGGER artifacts_refuse_insert BEFORE INSERT ON artifacts WHEN EXISTS (SELECT 1 FROM artifacts WHERE rowid = NEW.rowid) OR EXISTS (SELECT 1 FROM artifacts WHERE namespace_id = NEW.namespace_id AND digest = NEW.digest) BEGIN SELECT RAISE(ABORT, 'kcache: rows of artifacts are never replaced'); END;
CREATE TRIGGER artifact_chunks_refuse_update BEFORE UPDATE ON artifact_chunks BEGIN SELECT RAISE(ABORT, 'kcache: rows of artifact_chunks are never changed'); END;
CREATE TRIGGER artifact_chunks_refuse_delete BEFORE DELETE ON artifact_chunks WHEN NOT EXISTS (SELECT 1 FROM gc_permits) BEGIN SELECT RAISE(ABORT, 'kcache: rows of artifact_chunks are never deleted'); END;
CREATE TRIGGER artifact_chunks_refuse_insert BEFORE INSERT ON artifact_chunks WHEN EXISTS (SELECT 1 FROM artifact_chunks WHERE rowid = NEW.rowid) OR EXISTS (SELECT 1 FROM artifact_chunks WHERE artifact_id = NEW.artifact_id AND generation = NEW.generation AND seq = NEW.seq) BEGIN SELECT RAISE(ABORT, 'kcache: rows of artifact_chunks are never replaced'); END;
CREATE TRIGGER audit_events_refuse_update BEFORE UPDATE ON audit_events BEGIN SELECT RAISE(ABORT, 'kcache: rows of audit_events are never changed'); END;
CREATE TRIGGER audit_events_refuse_delete BEFORE DELETE ON audit_events WHEN NOT EXISTS (SELECT 1 FROM gc_permits) BEGIN SELECT RAISE(ABORT, 'kcache: rows of audit_events are never deleted'); END;
CREATE TRIGGER audit_events_refuse_insert BEFORE INSERT ON audit_events WHEN EXISTS (SELECT 1 FROM audit_events WHERE rowid = NEW.rowid) BEGIN SELECT RAISE(ABORT, 'kcache: rows of audit_events are never replaced'); END;
CREATE TRIGGER audit_seals_refuse_update BEFORE UPDATE ON audit_seals BEGIN SELECT RAISE(ABORT, 'kcache: rows of audit_seals are never changed'); END;
CREATE TRIGGER audit_seals_refuse_delete BEFORE DELETE ON audit_seals WHEN NOT EXISTS (SELECT 1 FROM gc_permits) BEGIN SELECT RAISE(ABORT, 'kcache: rows of audit_seals are never deleted'); END;
CREATE TRIGGER audit_seals_refuse_insert BEFORE INSERT ON audit_seals WHEN EXISTS (SELECT 1 FROM audit_seals WHERE rowid = NEW.rowid) OR EXISTS (SELECT 1 FROM audit_seals WHERE writer = NEW.writer AND sequence = NEW.sequence) BEGIN SELECT RAISE(ABORT, 'kcache: rows of audit_seals are never replaced'); END;
CREATE TRIGGER conflicts_refuse_update BEFORE UPDATE ON conflicts BEGIN SELECT RAISE(ABORT, 'kcache: rows of conflicts are never changed'); END;
CREATE TRIGGER conflicts_refuse_delete BEFORE DELETE ON conflicts WHEN NOT EXISTS (SELECT 1 FROM gc_permits) BEGIN SELECT RAISE(ABORT, 'kcache: rows of conflicts are never deleted'); END;
CREATE TRIGGER conflicts_refuse_insert BEFORE INSERT ON conflicts WHEN EXISTS (SELECT 1 FROM conflicts WHERE rowid = NEW.rowid) BEGIN SELECT RAISE(ABORT, 'kcache: rows of conflicts are never replaced'); END;
CREATE VIEW v_specs AS 
            SELECT n.name AS namespace, t.key, CASE WHEN t.spec_digest IS NOT NULL THEN lower(hex(t.spec_digest)) END AS spec_digest, t.numerics, t.canonicalizer, t.family,
                   t.text_size, strftime('%Y-%m-%dT%H:%M:%S', t.created_at / 1000000, 'unixepoch') || printf('.%06dZ', t.created_at % 1000000) AS created_at
            FROM specs t JOIN namespaces n ON n.id = t.namespace_id;
CREATE VIEW v_graph_mappings AS 
            SELECT n.name AS namespace, t.epoch, CASE WHEN t.program_digest IS NOT NULL THEN lower(hex(t.program_digest)) END AS program_digest, t.numerics, t.key,
                   strftime('%Y-%m-%dT%H:%M:%S', t.created_at / 1000000, 'unixepoch') || printf('.%06dZ', t.created_at % 1000000) AS created_at
            FROM graph_mappings t JOIN namespaces n ON n.id = t.namespace_id;
CREATE VIEW v_kernels AS 
            SELECT t.id, n.name AS namespace, t.epoch, CASE WHEN t.kernel_digest IS NOT NULL THEN lower(hex(t.kernel_digest)) END AS kernel_digest, t.key, t.arg_spec, t.guard,
                   t.target, t.options, CASE WHEN t.toolchain IS NOT NULL THEN lower(hex(t.toolchain)) END AS toolchain, t.compile_us, strftime('%Y-%m-%dT%H:%M:%S', t.created_at / 1000000, 'unixepoch') || printf('.%06dZ', t.created_at % 1000000) AS created_at
            FROM kernels t JOIN namespaces n ON n.id = t.namespace_id;
CREATE INDEX ix_kernels_key ON kernels (namespace_id, "key");
CREATE VIEW v_key_ingredients AS 
            SELECT n.name AS namespace, k.epoch, k.key, k.id AS kernel_id, CASE WHEN k.kernel_digest IS NOT NULL THEN lower(hex(k.kernel_digest)) END AS kernel_digest,
                   i.position, i.name, i.value, strftime('%Y-%m-%dT%H:%M:%S', k.created_at / 1000000, 'unixepoch') || printf('.%06dZ', k.created_at % 1000000) AS created_at
            FROM kernel_ingredients i
            JOIN kernels k ON k.id = i.kernel_id
            JOIN namespaces n ON n.id = k.namespace_id;
CREATE VIEW v_key_differences AS 
            SELECT n.name AS namespace, a.key, a.id AS kernel_id, b.id AS other_id,
                   CASE WHEN a.kernel_digest IS NOT NULL THEN lower(hex(a.kernel_digest)) END AS kernel_digest, CASE WHEN b.kernel_digest IS NOT NULL THEN lower(hex(b.kernel_digest)) END AS other_digest,
                   a.epoch, b.epoch AS other_epoch, i.position, i.name, i.value, j.value AS other_value
            FROM kernels a
            JOIN namespaces n ON n.id = a.namespace_id
            JOIN kernels b ON b.namespace_id = a.namespace_id AND b.key = a.key AND b.id <> a.id
            JOIN kernel_ingredients i ON i.kernel_id = a.id
            LEFT JOIN kernel_ingredients j ON j.kernel_id = b.id AND j.name = i.name
            WHERE j.value IS NULL OR j.value <> i.value;
CREATE VIEW v_failures AS 
            SELECT n.name AS namespace, t.epoch, CASE WHEN t.kernel_digest IS NOT NULL THEN lower(hex(t.kernel_digest)) END AS kernel_digest, t.reason, t.stage, t.diagnostic,
                   t.count, strftime('%Y-%m-%dT%H:%M:%S', t.first_at / 1000000, 'unixepoch') || printf('.%06dZ', t.first_at % 1000000) AS first_at, strftime('%Y-%m-%dT%H:%M:%S', t.last_at / 1000000, 'unixepoch') || printf('.%06dZ', t.last_at % 1000000) AS last_at, strftime('%Y-%m-%dT%H:%M:%S', t.expires_at / 1000000, 'unixepoch') || printf('.%06dZ', t.expires_at % 1000000) AS expires_at
            FROM failures t JOIN namespaces n ON n.id = t.namespace_id;
CREATE INDEX ix_dead_objects_dead_at ON dead_objects (dead_at);
CREATE INDEX ix_artifact_chunks_location ON artifact_chunks (location) WHERE location IS NOT NULL;
CREATE INDEX ix_audit_events_job ON audit_events (namespace_id, job, id);
CREATE INDEX ix_kernels_toolchain ON kernels (namespace_id, toolchain, epoch, id);
CREATE INDEX ix_specs_text_size ON specs (namespace_id, text_size, "key");
CREATE TRIGGER audit_writers_refuse_update BEFORE UPDATE ON audit_writers BEGIN SELECT RAISE(ABORT, 'kcache: rows of audit_writers are never changed'); END;
CREATE TRIGGER audit_writers_refuse_delete BEFORE DELETE ON audit_writers WHEN NOT EXISTS (SELECT 1 FROM gc_permits) BEGIN SELECT RAISE(ABORT, 'kcache: rows of audit_writers are never deleted'); END;
CREATE TRIGGER audit_writers_refuse_insert BEFORE INSERT ON audit_writers WHEN EXISTS (SELECT 1 FROM audit_writers WHERE rowid = NEW.rowid) OR EXISTS (SELECT 1 FROM audit_writers WHERE writer = NEW.writer) BEGIN SELECT RAISE(ABORT, 'kcache: rows of audit_writers are never replaced'); END;
CREATE TRIGGER audit_checkpoints_refuse_update BEFORE UPDATE ON audit_checkpoints BEGIN SELECT RAISE(ABORT, 'kcache: rows of audit_checkpoints are never changed'); END;
CREATE TRIGGER audit_checkpoints_refuse_delete BEFORE DELETE ON audit_checkpoints WHEN NOT EXISTS (SELECT 1 FROM gc_permits) BEGIN SELECT RAISE(ABORT, 'kcache: rows of audit_checkpoints are never deleted'); END;
CREATE TRIGGER audit_checkpoints_refuse_insert BEFORE INSERT ON audit_checkpoints WHEN EXISTS (SELECT 1 FROM audit_checkpoints WHERE rowid = NEW.rowid) OR EXISTS (SELECT 1 FROM audit_checkpoints WHERE writer = NEW.writer AND sequence = NEW.sequence) BEGIN SELECT RAISE(ABORT, 'kcache: rows of audit_checkpoints are never replaced'); END;
CREATE VIEW v_audit AS 
            SELECT t.id, n.name AS namespace, t.epoch, strftime('%Y-%m-%dT%H:%M:%S', t.at / 1000000, 'unixepoch') || printf('.%06dZ', t.at % 1000000) AS at, t.kind, t.outcome, t.origin, t.actor,
                   t.job, t.peer, t.request_id, t.request_count, CASE WHEN t.program_digest IS NOT NULL THEN lower(hex(t.program_digest)) END AS program_digest, CASE WHEN t.spec_digest IS NOT NULL THEN lower(hex(t.spec_digest)) END AS spec_digest, t.key,
                   CASE WHEN t.kernel_digest IS NOT NULL THEN lower(hex(t.kernel_digest)) END AS kernel_digest, t.target, CASE WHEN t.toolchain IS NOT NULL THEN lower(hex(t.toolchain)) END AS toolchain, t.duration_us, t.byte_count,
                   t.saved_us, t.detail
            FROM audit_events t LEFT JOIN namespaces n ON n.id = t.namespace_id;
CREATE VIEW v_job_kernels AS 
            SELECT n.name AS namespace, t.job, t.actor, t.key, CASE WHEN t.kernel_digest IS NOT NULL THEN lower(hex(t.kernel_digest)) END AS kernel_digest, t.target,
                   CASE WHEN t.toolchain IS NOT NULL THEN lower(hex(t.toolchain)) END AS toolchain, CAST(COALESCE(SUM(CASE WHEN t.kind = 'serve' THEN t.request_count ELSE 0 END), 0) AS BIGINT) AS served, CAST(COALESCE(SUM(CASE WHEN t.kind = 'publish' THEN 1 ELSE 0 END), 0) AS BIGINT) AS compiled,
                   CAST(COALESCE(SUM(CASE WHEN t.kind = 'publish' THEN t.duration_us ELSE 0 END), 0) AS BIGINT) AS compile_us, CAST(COALESCE(SUM(t.saved_us), 0) AS BIGINT) AS saved_us, strftime('%Y-%m-%dT%H:%M:%S', MIN(t.at) / 1000000, 'unixepoch') || printf('.%06dZ', MIN(t.at) % 1000000) AS first_at, strftime('%Y-%m-%dT%H:%M:%S', MAX(t.at) / 1000000, 'unixepoch') || printf('.%06dZ', MAX(t.at) % 1000000) AS last_at
            FROM audit_events t JOIN namespaces n ON n.id = t.namespace_id
            WHERE t.job <> '' AND length(t.kernel_digest) > 0 AND t.kind IN ('serve', 'publish')
            GROUP BY n.name, t.namespace_id, t.job, t.actor, t.key, t.kernel_digest, t.target, t.toolchain;
CREATE INDEX ix_usage_last_used_at ON usage (namespace_id, subject, last_used_at);
CREATE INDEX ix_audit_misses_misses ON audit_misses (namespace, misses);
CREATE TRIGGER audit_events_add_miss AFTER INSERT ON audit_events WHEN NEW.kind = 'miss' BEGIN INSERT INTO audit_misses (namespace, program_digest, target, reason, key, misses, first_at, last_at, last_actor, last_job) SELECT n.name, coalesce(NEW.program_digest, x''), substr(NEW.target, 1, 100), substr(NEW.outcome, 1, 100), NEW.key, NEW.request_count, NEW.at, NEW.at, NEW.actor, NEW.job FROM namespaces n WHERE n.id = NEW.namespace_id ON CONFLICT (namespace, program_digest, target, reason) DO UPDATE SET key = coalesce(excluded.key, key), misses = min(misses + excluded.misses, 9223372036854775807), first_at = min(first_at, excluded.first_at), last_at = max(last_at, excluded.last_at), last_actor = CASE WHEN excluded.last_at < last_at THEN last_actor ELSE excluded.last_actor END, last_job = CASE WHEN excluded.last_at < last_at THEN last_job ELSE excluded.last_job END; END;
CREATE TRIGGER audit_events_add_day AFTER INSERT ON audit_events WHEN NEW.kind IN ('serve', 'publish') BEGIN INSERT INTO audit_days (namespace, day, slot, served, saved_us, compiled, compile_us) SELECT n.name, NEW.at / 86400000000, 0, CASE WHEN NEW.kind = 'serve' THEN NEW.request_count ELSE 0 END, NEW.saved_us, CASE WHEN NEW.kind = 'publish' THEN 1 ELSE 0 END, CASE WHEN NEW.kind = 'publish' THEN NEW.duration_us ELSE 0 END FROM namespaces n WHERE n.id = NEW.namespace_id ON CONFLICT (namespace, day, slot) DO UPDATE SET served = min(served + excluded.served, 9223372036854775807), saved_us = min(saved_us + excluded.saved_us, 9223372036854775807), compiled = min(compiled + excluded.compiled, 9223372036854775807), compile_us = min(compile_us + excluded.compile_us, 9223372036854775807); END;
CREATE INDEX ix_audit_events_kernel ON audit_events (namespace_id, CASE WHEN kernel_digest IS NOT NULL THEN lower(hex(kernel_digest)) END, id);
CREATE INDEX ix_kernels_toolchain_hex ON kernels (CASE WHEN toolchain IS NOT NULL THEN lower(hex(toolchain)) END);
CREATE VIEW v_kernel_users AS 
            SELECT n.name AS namespace, CASE WHEN t.kernel_digest IS NOT NULL THEN lower(hex(t.kernel_digest)) END AS kernel_digest, t.key, t.target, t.actor, t.job, t.peer,
                   CAST(COALESCE(SUM(CASE WHEN t.kind = 'serve' THEN t.request_count ELSE 0 END), 0) AS BIGINT) AS served, CAST(COALESCE(SUM(CASE WHEN t.kind = 'publish' THEN 1 ELSE 0 END), 0) AS BIGINT) AS compiled,
                   CAST(COALESCE(SUM(t.byte_count), 0) AS BIGINT) AS bytes, CAST(COALESCE(SUM(t.saved_us), 0) AS BIGINT) AS saved_us,
                   strftime('%Y-%m-%dT%H:%M:%S', MIN(t.at) / 1000000, 'unixepoch') || printf('.%06dZ', MIN(t.at) % 1000000) AS first_at, strftime('%Y-%m-%dT%H:%M:%S', MAX(t.at) / 1000000, 'unixepoch') || printf('.%06dZ', MAX(t.at) % 1000000) AS last_at
            FROM audit_events t JOIN namespaces n ON n.id = t.namespace_id
            WHERE length(t.kernel_digest) > 0 AND t.kind IN ('serve', 'publish')
            GROUP BY n.name, CASE WHEN t.kernel_digest IS NOT NULL THEN lower(hex(t.kernel_digest)) END, t.key, t.target, t.actor, t.job, t.peer;
CREATE VIEW v_toolchain_artifacts AS 
            SELECT n.name AS namespace, CASE WHEN k.toolchain IS NOT NULL THEN lower(hex(k.toolchain)) END AS toolchain, k.key, CASE WHEN k.kernel_digest IS NOT NULL THEN lower(hex(k.kernel_digest)) END AS kernel_digest, k.target,
                   l.kind, CASE WHEN a.digest IS NOT NULL THEN lower(hex(a.digest)) END AS artifact_digest, a.size,
                   strftime('%Y-%m-%dT%H:%M:%S', k.created_at / 1000000, 'unixepoch') || printf('.%06dZ', k.created_at % 1000000) AS created_at, t.actor, t.job,
                   CAST(SUM(t.request_count) AS BIGINT) AS requests, strftime('%Y-%m-%dT%H:%M:%S', MAX(t.at) / 1000000, 'unixepoch') || printf('.%06dZ', MAX(t.at) % 1000000) AS last_at
            FROM kernels k
            JOIN namespaces n ON n.id = k.namespace_id
            JOIN kernel_artifacts l ON l.kernel_id = k.id
            JOIN artifacts a ON a.id = l.artifact_id
            LEFT JOIN audit_events t ON t.namespace_id = k.namespace_id AND CASE WHEN t.kernel_digest IS NOT NULL THEN lower(hex(t.kernel_digest)) END = CASE WHEN k.kernel_digest IS NOT NULL THEN lower(hex(k.kernel_digest)) END
                AND t.kind IN ('serve', 'publish')
            GROUP BY n.name, CASE WHEN k.toolchain IS NOT NULL THEN lower(hex(k.toolchain)) END, k.id, k.key, CASE WHEN k.kernel_digest IS NOT NULL THEN lower(hex(k.kernel_digest)) END, k.target,
                     k.created_at, l.kind, a.digest, a.size, t.actor, t.job;
CREATE VIEW v_misses AS 
            SELECT namespace, reason, NULLIF(CASE WHEN program_digest IS NOT NULL THEN lower(hex(program_digest)) END, '') AS program_digest, key, target, misses, last_actor, last_job,
                   strftime('%Y-%m-%dT%H:%M:%S', first_at / 1000000, 'unixepoch') || printf('.%06dZ', first_at % 1000000) AS first_at, strftime('%Y-%m-%dT%H:%M:%S', last_at / 1000000, 'unixepoch') || printf('.%06dZ', last_at % 1000000) AS last_at
            FROM audit_misses;
CREATE VIEW v_time_saved AS 
            SELECT namespace, substr(strftime('%Y-%m-%dT%H:%M:%S', (audit_days.day * 86400000000) / 1000000, 'unixepoch') || printf('.%06dZ', (audit_days.day * 86400000000) % 1000000), 1, 10) AS day,
                   CAST(COALESCE(SUM(served), 0) AS BIGINT) AS served, CAST(COALESCE(SUM(saved_us), 0) AS BIGINT) AS saved_us,
                   CAST(COALESCE(SUM(compiled), 0) AS BIGINT) AS compiled, CAST(COALESCE(SUM(compile_us), 0) AS BIGINT) AS compile_us
            FROM audit_days
            GROUP BY namespace, audit_days.day;
CREATE INDEX ix_quarantined_rows_namespace_id ON quarantined_rows (namespace_id, id);
CREATE INDEX ix_quarantined_blobs_artifact_id ON quarantined_blobs (artifact_id);
CREATE INDEX ix_cache_usage_last_used_at ON cache_usage (last_used_at, value_id);
CREATE TRIGGER cache_values_refuse_update BEFORE UPDATE ON cache_values BEGIN SELECT RAISE(ABORT, 'kcache: rows of cache_values are never changed'); END;
CREATE TRIGGER cache_values_refuse_delete BEFORE DELETE ON cache_values WHEN NOT EXISTS (SELECT 1 FROM gc_permits) BEGIN SELECT RAISE(ABORT, 'kcache: rows of cache_values are never deleted'); END;
CREATE TRIGGER cache_values_refuse_insert BEFORE INSERT ON cache_values WHEN EXISTS (SELECT 1 FROM cache_values WHERE rowid = NEW.rowid) OR EXISTS (SELECT 1 FROM cache_values WHERE namespace_id = NEW.namespace_id AND key = NEW.key) BEGIN SELECT RAISE(ABORT, 'kcache: rows of cache_values are never replaced'); END;
CREATE TRIGGER cache_chunks_refuse_update BEFORE UPDATE ON cache_chunks BEGIN SELECT RAISE(ABORT, 'kcache: rows of cache_chunks are never changed'); END;
CREATE TRIGGER cache_chunks_refuse_delete BEFORE DELETE ON cache_chunks WHEN NOT EXISTS (SELECT 1 FROM gc_permits) BEGIN SELECT RAISE(ABORT, 'kcache: rows of cache_chunks are never deleted'); END;
CREATE TRIGGER cache_chunks_refuse_insert BEFORE INSERT ON cache_chunks WHEN EXISTS (SELECT 1 FROM cache_chunks WHERE rowid = NEW.rowid) OR EXISTS (SELECT 1 FROM cache_chunks WHERE value_id = NEW.value_id AND seq = NEW.seq) BEGIN SELECT RAISE(ABORT, 'kcache: rows of cache_chunks are never replaced'); END;
CREATE TRIGGER cache_conflicts_refuse_update BEFORE UPDATE ON cache_conflicts BEGIN SELECT RAISE(ABORT, 'kcache: rows of cache_conflicts are never changed'); END;
CREATE TRIGGER cache_conflicts_refuse_delete BEFORE DELETE ON cache_conflicts WHEN NOT EXISTS (SELECT 1 FROM gc_permits) BEGIN SELECT RAISE(ABORT, 'kcache: rows of cache_conflicts are never deleted'); END;
CREATE TRIGGER cache_conflicts_refuse_insert BEFORE INSERT ON cache_conflicts WHEN EXISTS (SELECT 1 FROM cache_conflicts WHERE rowid = NEW.rowid) OR EXISTS (SELECT 1 FROM cache_conflicts WHERE namespace_id = NEW.namespace_id AND key = NEW.key AND offered = NEW.offered) BEGIN SELECT RAISE(ABORT, 'kcache: rows of cache_conflicts are never replaced'); END;
CREATE INDEX ix_assertion_usage_last_used_at ON assertion_usage (last_used_at, assertion_id);
CREATE TRIGGER assertions_refuse_update BEFORE UPDATE ON assertions BEGIN SELECT RAISE(ABORT, 'kcache: rows of assertions are never changed'); END;
CREATE TRIGGER assertions_refuse_delete BEFORE DELETE ON assertions WHEN NOT EXISTS (SELECT 1 FROM gc_permits) BEGIN SELECT RAISE(ABORT, 'kcache: rows of assertions are never deleted'); END;
CREATE TRIGGER assertions_refuse_insert BEFORE INSERT ON assertions WHEN EXISTS (SELECT 1 FROM assertions WHERE rowid = NEW.rowid) OR EXISTS (SELECT 1 FROM assertions WHERE namespace_id = NEW.namespace_id AND epoch = NEW.epoch AND source_digest = NEW.source_digest AND actor = NEW.actor) BEGIN SELECT RAISE(ABORT, 'kcache: rows of assertions are never replaced'); END;
CREATE TRIGGER assertion_conflicts_refuse_update BEFORE UPDATE ON assertion_conflicts BEGIN SELECT RAISE(ABORT, 'kcache: rows of assertion_conflicts are never changed'); END;
CREATE TRIGGER assertion_conflicts_refuse_delete BEFORE DELETE ON assertion_conflicts WHEN NOT EXISTS (SELECT 1 FROM gc_permits) BEGIN SELECT RAISE(ABORT, 'kcache: rows of assertion_conflicts are never deleted'); END;
CREATE TRIGGER assertion_conflicts_refuse_insert BEFORE INSERT ON assertion_conflicts WHEN EXISTS (SELECT 1 FROM assertion_conflicts WHERE rowid = NEW.rowid) OR EXISTS (SELECT 1 FROM assertion_conflicts WHERE namespace_id = NEW.namespace_id AND epoch = NEW.epoch AND source_digest = NEW.source_digest AND actor = NEW.actor AND offered = NEW.offered) BEGIN SELECT RAISE(ABORT, 'kcache: rows of assertion_conflicts are never replaced'); END;
CREATE TRIGGER assertion_disputes_refuse_update BEFORE UPDATE ON assertion_disputes BEGIN SELECT RAISE(ABORT, 'kcache: rows of assertion_disputes are never changed'); END;
CREATE TRIGGER assertion_disputes_refuse_delete BEFORE DELETE ON assertion_disputes WHEN NOT EXISTS (SELECT 1 FROM gc_permits) BEGIN SELECT RAISE(ABORT, 'kcache: rows of assertion_disputes are never deleted'); END;
CREATE TRIGGER assertion_disputes_refuse_insert BEFORE INSERT ON assertion_disputes WHEN EXISTS (SELECT 1 FROM assertion_disputes WHERE rowid = NEW.rowid) OR EXISTS (SELECT 1 FROM assertion_disputes WHERE namespace_id = NEW.namespace_id AND epoch = NEW.epoch AND source_digest = NEW.source_digest AND actor = NEW.actor AND record_digest = NEW.record_digest) BEGIN SELECT RAISE(ABORT, 'kcache: rows of assertion_disputes are never replaced'); END;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('namespaces',2);
INSERT INTO "sqlite_sequence" VALUES('artifacts',4);
INSERT INTO "sqlite_sequence" VALUES('graph_mappings',2);
INSERT INTO "sqlite_sequence" VALUES('audit_events',2);
INSERT INTO "sqlite_sequence" VALUES('kernels',1);
INSERT INTO "sqlite_sequence" VALUES('cache_values',1);
INSERT INTO "sqlite_sequence" VALUES('assertions',1);
INSERT INTO "sqlite_sequence" VALUES('assertion_conflicts',1);
INSERT INTO "sqlite_sequence" VALUES('assertion_disputes',1);
COMMIT;
