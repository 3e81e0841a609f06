-- Holds the number until its migration comes.
select 1;
