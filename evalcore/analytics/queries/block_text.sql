-- The output of a block in a row's evidence; ids may hold any character.
CREATE OR REPLACE TEMP MACRO block_text(evidence, block) AS json_extract_string(
    evidence, '/outputs/' || replace(replace(block, '~', '~0'), '/', '~1')
)
